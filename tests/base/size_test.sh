#!/bin/bash
# Checks that functions have at most 60 lines and 7 parameters.
# Usage: size_test.sh SOURCE_DIR BUILD_DIR
# It uses the linter lizard (PyPI) from PATH or installs it into BUILD_DIR/lint; otherwise it is skipped (77).
set -euo pipefail
cd "$1"
lint=$2/lint
lizard=$(command -v lizard || echo "$lint/bin/lizard")
if [ ! -x "$lizard" ]; then
  { python3 -m venv "$lint" && "$lint/bin/pip" install -q --disable-pip-version-check lizard==1.24.3; } >/dev/null 2>&1 ||
    { echo "skipped: lizard is not installed and could not be installed (pip install lizard)"; exit 77; }
fi
# lizard recognizes C++ by the file name, so CUDA sources get links that end in .cpp.
links=$(mktemp -d)
trap 'rm -rf "$links"' EXIT
find src include tests -name '*.cu' -o -name '*.cuh' | while read -r file; do
  mkdir -p "$links/$(dirname "$file")"
  ln -s "$PWD/$file" "$links/$file.cpp"
done
long=$("$lizard" -l cpp --length 60 --arguments 7 --CCN 1000 --warnings_only src include tests "$links" |
  grep -vE ' (cuda|cublasLt|nccl)[A-Za-z]+ has [1-5]?[0-9] NLOC' || true)  # their parameters are those of a library
[ -z "$long" ] || { echo "FAILED: functions with more than 60 lines or 7 parameters. split them:"; echo "$long"; exit 1; }
