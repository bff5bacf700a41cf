#!/bin/bash
# Makes the pictures of the documentation: pictures.sh MILLRACE. Needs graphviz, chromium and the data of `make data`.
#   docs/pictures/data-flow.svg   from data-flow.dot
#   docs/pictures/report.png      `millrace report` of a short training, as a browser shows it
set -euo pipefail
cd "$(dirname "$0")/.."
millrace=$(realpath "$1")
for tool in dot chromium; do
  command -v $tool >/dev/null || { echo "$tool is missing. install it: apt-get install graphviz chromium" >&2; exit 1; }
done
dot -Tsvg docs/pictures/data-flow.dot -o docs/pictures/data-flow.svg
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mpirun --bind-to none -n 2 "$millrace" train -c inputs/fashion-mnist.cfg --run.dir "$folder/fashion-mnist" \
  --train.epochs 2 >"$folder/log" || { cat "$folder/log" >&2; exit 1; }
"$millrace" report "$folder/fashion-mnist" --out "$folder/report.html"
chromium --headless --no-sandbox --hide-scrollbars --window-size=1280,1000 --force-device-scale-factor=1 \
  --screenshot="$folder/report.png" "file://$folder/report.html" 2>/dev/null
mv "$folder/report.png" docs/pictures/report.png
echo "wrote docs/pictures/data-flow.svg and docs/pictures/report.png"
