#!/bin/bash
# Installs the Debian or Ubuntu packages that millrace needs to build, test and run, and those named as
# arguments. Does nothing if all of them are installed.
# Usage: deps.sh [PACKAGE...]
set -euo pipefail
packages=(g++ cmake make ninja-build libopenmpi-dev openmpi-bin libhdf5-openmpi-dev libboost-program-options-dev libdnnl-dev zlib1g-dev
  libaec-dev libdeflate-dev liblz4-dev libzstd-dev libblosc-dev libpng-dev libjpeg-dev liburing-dev libzip-dev libonnx-dev libprotobuf-dev nlohmann-json3-dev libfmt-dev libgtest-dev
  python3-venv dataset-fashion-mnist slurm-wlm munge iproute2 "$@")
command -v dpkg-query >/dev/null || {
  echo "this system has no dpkg (it is not Debian or Ubuntu). install the equivalents of these packages: ${packages[*]}" >&2
  exit 1
}
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "deps: all packages are installed"
  exit 0
fi
echo "deps: installing ${missing[*]}"
sudo=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || {
    echo "installing packages needs root, and sudo is not installed. run as root: apt-get install ${missing[*]}" >&2
    exit 1
  }
  sudo=(sudo)
fi
set -x
"${sudo[@]}" apt-get update -q
# SYSTEMD_OFFLINE: the tests start munge and Slurm themselves, in a folder of their own.
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive SYSTEMD_OFFLINE=1 apt-get install -y -q --no-install-recommends "${missing[@]}"
