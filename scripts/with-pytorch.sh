#!/bin/bash
# Runs a Python script with PyTorch, which is installed from PyPI into the virtual environment BUILD/peers, or from
# Debian (python3-torch) if that fails.
# PACKAGES: more packages of PyPI, which Debian's way does not install. Usage: with-pytorch.sh BUILD SCRIPT [ARGUMENTS]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: with-pytorch.sh BUILD SCRIPT [ARGUMENTS]}
shift
venv=$build/peers
python=$venv/bin/python
ready() { "$python" -c "import torch, h5py, PIL${PACKAGES:+, ${PACKAGES// /, }}" 2>/dev/null; }
if ! ready; then
  "$here/scripts/deps.sh" python3-venv
  echo "installing PyTorch into $venv (several gigabytes)"
  { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet torch h5py numpy pillow ${PACKAGES:-}; } || rm -rf "$venv"
fi
if ! ready; then
  echo "PyTorch cannot be installed from PyPI. installing Debian's package instead"
  "$here/scripts/deps.sh" python3-torch python3-h5py python3-pil
  python=/usr/bin/python3
fi
exec "$python" "$@"
