#!/bin/bash
# Functions have at most 60 lines and 7 parameters: size_test.sh SOURCE_DIR BUILD_DIR
# The linter is lizard (PyPI), from PATH or installed into BUILD_DIR/lint. Skipped (77) when neither can be had.
set -euo pipefail
cd "$1"
lint=$2/lint
lizard=$(command -v lizard || echo "$lint/bin/lizard")
if [ ! -x "$lizard" ]; then
  { python3 -m venv "$lint" && "$lint/bin/pip" install -q --disable-pip-version-check lizard==1.24.3; } >/dev/null 2>&1 ||
    { echo "skipped: lizard is not installed and could not be installed (pip install lizard)"; exit 77; }
fi
# lizard knows C++ by the file's name: CUDA sources get a link with a name that it knows.
links=$(mktemp -d)
trap 'rm -rf "$links"' EXIT
find src include tests -name '*.cu' -o -name '*.cuh' | while read -r file; do
  mkdir -p "$links/$(dirname "$file")"
  ln -s "$PWD/$file" "$links/$file.cpp"
done
long=$("$lizard" -l cpp --length 60 --arguments 7 --CCN 1000 --warnings_only src include tests "$links" || true)
[ -z "$long" ] || { echo "longer than 60 lines, or with more than 7 parameters. split them:"; echo "$long"; exit 1; }
