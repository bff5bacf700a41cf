#!/bin/bash
# peers.sh BUILD [OPTIONS of tests/peers/cpu.py]: millrace beside PyTorch in one run. PyTorch comes from PyPI into a virtual environment,
# BUILD/peers; where that fails, from Debian (python3-torch).
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: peers.sh BUILD [OPTIONS]}
shift
venv=$build/peers
python=$venv/bin/python
ready() { "$python" -c "import torch, h5py, PIL" 2>/dev/null; }
if ! ready; then
  "$here/scripts/deps.sh" python3-venv
  echo "peers: setting up PyTorch in $venv (some gigabytes)"
  { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet torch h5py numpy pillow; } || rm -rf "$venv"
fi
if ! ready; then
  echo "peers: PyPI gave no PyTorch; Debian's is taken"
  "$here/scripts/deps.sh" python3-torch python3-h5py python3-pil
  python=/usr/bin/python3
fi
exec "$python" "$here/tests/peers/cpu.py" "$build" "$@"
