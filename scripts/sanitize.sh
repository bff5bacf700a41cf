#!/bin/bash
# Builds and runs the tests of the loader, the collectives, checkpoints and HDF5 with a sanitizer, in
# build-asan or build-tsan. In these tests ranks are threads of one process. The comparisons with PyTorch and trainings
# whose threads other tests have too are left out, because they take long.
# Usage: sanitize.sh address|thread [ROOM...]
# A ROOM is a folder of tests. The default for address leaves out model and train, whose build takes ten minutes more:
# `sanitize.sh address model train`.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:?usage: sanitize.sh address|thread [ROOM...]}
case $kind in
address) build=build-asan rooms="base comm io data" leave_out="parity|muon" ;;
thread) build=build-tsan rooms="threads comm data train" leave_out="parity|muon|bits|groups|patience|generate" ;;
*)
  echo "usage: sanitize.sh address|thread [ROOM...]" >&2
  exit 2
  ;;
esac
if [ $# -gt 1 ]; then rooms=${*:2}; fi
# Libraries keep memory until the process ends, and MPI and HDF5 are not instrumented.
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS="halt_on_error=1 ignore_noninstrumented_modules=1"
targets=
for room in $rooms; do
  if [ -e "tests/$room/CMakeLists.txt" ]; then targets="$targets test_$room"; fi
done
set -x
cmake -S . -B $build -DMILLRACE_SANITIZE=$kind -DMILLRACE_TEST_TIMEOUT=400
# shellcheck disable=SC2086
cmake --build $build -j "${JOBS:-$(nproc)}" --target $targets
ctest --test-dir $build -R "^(${rooms// /|})(\.|$)" -E "$leave_out" -LE "long|mpi" -j 2 --output-on-failure
