#!/bin/bash
# Checks that the sources are formatted by clang-format 14 (make format). Other versions format some
# details differently, so the test is skipped if version 14 is not installed.
# Usage: format_test.sh SOURCE_DIR
set -euo pipefail
cd "$1"
for program in clang-format-14 clang-format ""; do
  [ "$program" ] || { echo "skipped: no clang-format 14 (package clang-format-14)" && exit 77; }
  ! command -v $program >/dev/null || ! $program --version | grep -q "version 14\." || break
done
wrong=$(find src include tests \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' \) -exec "$program" --dry-run -Werror {} + 2>&1 |
  sed -n 's/:[0-9:]* error:.*//p' | sort -u) || true
[ -z "$wrong" ] || { echo "FAILED: not formatted by clang-format 14 (run make format): $wrong" && exit 1; }
