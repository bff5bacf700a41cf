#!/bin/bash
# h5py_test.sh BUILD MILLRACE TEST_DATA: millrace reads files that h5py and hdf5plugin wrote; h5py reads shards that millrace packed. Both packages are
# installed from PyPI into the virtual environment BUILD/h5py. Exit status 77: skipped, because they cannot be installed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1
millrace=$2
tests=$3
venv=$build/h5py
python=$venv/bin/python
ready() { "$python" -c "import h5py, hdf5plugin, numpy" 2>/dev/null; }
if ! ready; then
  rm -rf "$venv"
  { python3 -m venv "$venv" && timeout 400 "$venv/bin/pip" install --quiet h5py hdf5plugin numpy; } >"$build/h5py.log" 2>&1 || true
fi
if ! ready; then
  echo "h5py: skipped, no virtual environment with h5py and hdf5plugin ($(tail -n 1 "$build/h5py.log"))"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" "$here/h5py_files.py" write "$folder"
MILLRACE_TEST_H5PY=$folder "$tests" --gtest_filter='H5py.*'
for codec in none zstd lz4; do
  "$millrace" pack --x "$folder/packed.npz" --no-shuffle --codec $codec --layout channels_last --out "$folder/$codec" >/dev/null
  "$python" "$here/h5py_files.py" read "$folder/$codec/train-00000.h5"
done
