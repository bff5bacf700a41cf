#!/bin/bash
# Compares the speed of millrace and PyTorch (tests/peers/cpu.py). PyTorch is installed from PyPI into the
# virtual environment BUILD/peers, or from Debian (python3-torch) if that fails.
# Usage: peers.sh BUILD [OPTIONS of tests/peers/cpu.py]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: peers.sh BUILD [OPTIONS]}
shift
venv=$build/peers
python=$venv/bin/python
ready() { "$python" -c "import torch, h5py, PIL" 2>/dev/null; }
if ! ready; then
  "$here/scripts/deps.sh" python3-venv
  echo "peers: installing PyTorch into $venv (several gigabytes)"
  { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet torch h5py numpy pillow; } || rm -rf "$venv"
fi
if ! ready; then
  echo "peers: PyTorch cannot be installed from PyPI. installing Debian's package instead"
  "$here/scripts/deps.sh" python3-torch python3-h5py python3-pil
  python=/usr/bin/python3
fi
exec "$python" "$here/tests/peers/cpu.py" "$build" "$@"
