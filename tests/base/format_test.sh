#!/bin/bash
# The sources are formatted as clang-format 14 formats them (make format). Other versions differ in
# details, so without that one the test is skipped.
# Usage: format_test.sh SOURCE_DIR
set -euo pipefail
cd "$1"
for program in clang-format-14 clang-format ""; do
  [ "$program" ] || { echo "skipped: no clang-format 14 (package clang-format-14)" && exit 77; }
  ! command -v $program >/dev/null || ! $program --version | grep -q "version 14\." || break
done
wrong=$(find src include tests \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' \) -exec "$program" --dry-run -Werror {} + 2>&1 |
  sed -n 's/:[0-9:]* error:.*//p' | sort -u) || true
[ -z "$wrong" ] || { echo "FAILED: expected the format of clang-format 14 (make format) in: $wrong" && exit 1; }
