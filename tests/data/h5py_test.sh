#!/bin/bash
# millrace reads the files that h5py and hdf5plugin write, and h5py reads the shards that millrace packs.
# Both packages come from PyPI, into a virtual environment in the build folder; without them the test is
# skipped.
# Usage: h5py_test.sh BUILD_DIR MILLRACE TEST_DATA
set -euo pipefail
test_data=$(readlink -f "$3")
source "$(dirname "$0")/../app/lib.sh" "$2" mpirun
source "$root/tests/support/python.sh"
files=$root/tests/data/h5py_files.py
python_environment h5py h5py,hdf5plugin,numpy h5py hdf5plugin numpy
expect_exit 0 "$python" "$files" write .
MILLRACE_TEST_H5PY=$folder expect_exit 0 "$test_data" --gtest_filter='H5py.*'
for codec in none zstd lz4; do
  expect_exit 0 "$millrace" pack --x packed.npz --no-shuffle --codec $codec --layout channels_last --out $codec
  expect_exit 0 "$python" "$files" read $codec/train-00000.h5
done
