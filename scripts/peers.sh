#!/bin/bash
# peers.sh MILLRACE [OPTIONS of tests/peers/cpu.py]: millrace beside PyTorch in one run. PyTorch comes from PyPI into a virtual environment in
# build/peers, or from Debian (python3-torch) where that fails.
set -e
here=$(cd "$(dirname "$0")/.." && pwd)
venv=$here/build/peers
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c "import torch, h5py" 2>/dev/null; then
  echo "peers: setting up PyTorch in $venv (some gigabytes)"
  rm -rf "$venv"
  python3 -m venv "$venv" && "$venv/bin/pip" install --quiet torch h5py numpy || rm -rf "$venv"
fi
python=$venv/bin/python
if [ ! -x "$python" ]; then
  echo "peers: PyPI gave no PyTorch; Debian's is taken"
  "$here/scripts/deps.sh" python3-torch python3-h5py
  python=python3
fi
exec "$python" "$here/tests/peers/cpu.py" "$@"
