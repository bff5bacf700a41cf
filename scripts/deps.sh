#!/bin/sh
# Installs what is missing of the Debian or Ubuntu packages that millrace builds, tests and runs with, and of those named as arguments; does
# nothing when all is there.
set -eu
packages="g++ cmake make ninja-build libopenmpi-dev openmpi-bin libhdf5-openmpi-dev libboost-program-options-dev libdnnl-dev zlib1g-dev
 libaec-dev libdeflate-dev liblz4-dev libzstd-dev libblosc-dev libpng-dev libjpeg-dev liburing-dev nlohmann-json3-dev libgtest-dev python3-venv dataset-fashion-mnist $*"
command -v dpkg-query >/dev/null || { echo "this is no Debian or Ubuntu machine: install by hand what provides: $packages" >&2; exit 1; }
missing=""
for p in $packages; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || { echo "deps: all packages are there"; exit 0; }
echo "deps: installing$missing"
sudo=""
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "not root and no sudo: as root run: apt-get install$missing" >&2; exit 1; }
  sudo="sudo"
fi
set -x
$sudo apt-get update -q
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
