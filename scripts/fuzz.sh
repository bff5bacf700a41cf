#!/bin/bash
# Builds the fuzzers of tests/fuzz in build-fuzz and runs them for SECONDS (60) in total.
# The inputs that they find are kept in build-fuzz/corpus, and the next run continues with them. An input that
# crashes a fuzzer is written to build-fuzz/found; `build-fuzz/tests/fuzz/fuzz_NAME FILE` repeats the crash.
# Usage: fuzz.sh [SECONDS [NAME...]]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift $(($# > 0))
names=("$@")
if [ ${#names[@]} -eq 0 ]; then names=(chunks global_heap files tables images layers config pt2); fi
cxx=$(command -v clang++-14 || command -v clang++ || true)
if [ -z "$cxx" ]; then
  echo "skipped: no clang (Debian packages clang and libclang-rt-14-dev)"
  exit 77
fi
if ! echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' | "$cxx" -x c++ -fsanitize=fuzzer,address -o /dev/null - 2>/dev/null; then
  echo "skipped: $cxx has no libFuzzer (Debian package libclang-rt-14-dev)"
  exit 77
fi
cmake -S . -B build-fuzz -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_COMPILER="${cxx/++/}" -DMILLRACE_FUZZ=ON -DMILLRACE_CUDA=OFF >/dev/null
cmake --build build-fuzz -j "${JOBS:-$(nproc)}" --target fuzzers | grep -v "^\[" || [ "${PIPESTATUS[0]}" -eq 0 ]
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 OMPI_MCA_plm=isolated
mkdir -p build-fuzz/found
build-fuzz/tests/fuzz/fuzz_seeds build-fuzz/seeds
each=$(((seconds + ${#names[@]} - 1) / ${#names[@]}))
failed=0
for name in "${names[@]}"; do
  mkdir -p "build-fuzz/corpus/$name"
  rss_limit=3000
  # fuzz_files forks for each input. libFuzzer's memory thread may hold a lock of the sanitizer at that moment, and then
  # a thread of the child waits for this lock forever. Without the limit, libFuzzer starts no thread.
  if [ "$name" = files ]; then rss_limit=0; fi
  options=(-max_total_time="$each" -timeout=20 -rss_limit_mb="$rss_limit" -malloc_limit_mb=1000 -artifact_prefix="build-fuzz/found/$name-" -print_final_stats=1)
  if ! "build-fuzz/tests/fuzz/fuzz_$name" "${options[@]}" "build-fuzz/corpus/$name" "build-fuzz/seeds/$name" >"build-fuzz/$name.log" 2>&1; then
    failed=1
    echo "fuzz_$name FAILED:"
    grep -A 40 -m 1 "ERROR" "build-fuzz/$name.log" || true  # the cause is at the start of the report, the input at its end
    tail -n 20 "build-fuzz/$name.log"
  fi
  grep "^HDF5 itself" "build-fuzz/$name.log" | tail -n 1 || true
  echo "fuzz_$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "build-fuzz/$name.log") inputs in $each s"
done
exit $failed
