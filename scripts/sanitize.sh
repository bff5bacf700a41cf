#!/bin/bash
# sanitize.sh address|thread: the loader, the sums over ranks, checkpoints and HDF5 under a sanitizer, in build-asan or build-tsan. The thread
# sanitizer does not know OpenMP's barriers: its build does without, and ranks are threads of one process.
set -eu
cd "$(dirname "$0")/.."
kind=${1:?usage: sanitize.sh address|thread}
case $kind in
address) build=build-asan rooms="base comm io data model train" ;;
thread) build=build-tsan rooms="comm data train" ;;
*) echo "sanitize.sh: address or thread" >&2; exit 2 ;;
esac
# Libraries keep memory until the end of the process, and MPI's and HDF5's are not instrumented.
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS="halt_on_error=1 ignore_noninstrumented_modules=1"
targets=
for room in $rooms; do
  if [ -e "tests/$room/CMakeLists.txt" ]; then targets="$targets test_$room"; fi
done
set -x
cmake -S . -B $build -DMILLRACE_SANITIZE=$kind -DMILLRACE_TEST_TIMEOUT=120
# shellcheck disable=SC2086
cmake --build $build -j "${JOBS:-$(nproc)}" --target $targets
ctest --test-dir $build -R "^(${rooms// /|})(\.|$)" -LE "long|mpi" -j 2 --output-on-failure
