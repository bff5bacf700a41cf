#!/bin/bash
# Compiles src/cuda with CUDA 12.4, whichever version the build has. Nothing is installed: the compiler is unpacked from
# a package of Debian 13, the headers from NVIDIA's packages on PyPI. If they cannot be downloaded it exits with 77
# (skipped) and prints the reason. The unpacked files are kept in BUILD_DIR/cuda-12.
# Usage: check-cuda-12.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD
build=$(realpath "$1")
base=$build/cuda-12
skip() {
  echo "skipped: $1"
  exit 77
}

# Prints the URL of a Debian mirror that apt uses on this machine.
debian_mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | awk '/\/debian\/*$/ && !found++'
}

# Downloads the package with a state folder and a list of sources of its own, so that the system's are not changed. The
# proxy and the certificates are those of the system.
fetch_package() {
  local apt=$PWD/apt mirror keys=/usr/share/keyrings/debian-archive-keyring.gpg
  mirror=$(debian_mirror)
  if [ -z "$mirror" ] || [ ! -r "$keys" ]; then
    echo "apt uses no Debian mirror here, or $keys is missing"
    return 1
  fi
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
  echo "deb [signed-by=$keys] $mirror trixie non-free" >"$apt/sources.list"
  apt-config dump | grep -E '^(Acquire|APT::Architecture)' >"$apt/conf"
  cat >>"$apt/conf" <<END
Dir::State "$apt";
Dir::State::lists "lists";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::parts "/dev/null";
APT::Sandbox::User "$(id -un)";
END
  APT_CONFIG=$apt/conf apt-get -q --error-on=any update && APT_CONFIG=$apt/conf apt-get -q download nvidia-cuda-toolkit
}

# The package expects its files in /usr and /etc, so they are arranged as in NVIDIA's own toolkit.
unpack_compiler() {
  mkdir -p new/bin
  dpkg -x nvidia-cuda-toolkit_*.deb files
  mv files/usr/bin/{cudafe++,fatbinary,ptxas} files/usr/lib/nvidia-cuda-toolkit/bin/{nvcc,cicc,crt} new/bin
  mv files/usr/lib/nvidia-cuda-toolkit/libdevice new/libdevice
  printf '%s\n' 'NVVMIR_LIBRARY_DIR = $(_HERE_)/../libdevice' 'PATH += $(_HERE_):' >new/bin/nvcc.profile
}

# The wheel of cuBLAS has 360 MB, but no other package contains its headers. Only the headers are kept.
unpack_headers() {
  mkdir -p include
  for part in runtime nvcc cccl cupti cublas nvtx; do
    case $part in cublas | nvtx) name=nvidia-$part-cu12 ;; *) name=nvidia-cuda-$part-cu12 ;; esac
    python3 -m pip download -q --no-deps --no-cache-dir --only-binary :all: -d wheel "$name==12.4.*" &&
      python3 -m zipfile -e wheel/*.whl wheel/files &&
      cp -R wheel/files/nvidia/*/include/. include || return 1
    rm -r wheel
  done
}

if [ ! -e "$base/ready" ]; then
  rm -rf "$base"
  mkdir -p "$base"
  cd "$base"
  fetch_package >fetch.log 2>&1 || skip "nvidia-cuda-toolkit of Debian 13 cannot be downloaded (see $base/fetch.log)"
  unpack_compiler
  (cd new && unpack_headers) >>fetch.log 2>&1 || skip "CUDA 12's headers cannot be downloaded from PyPI (see $base/fetch.log)"
  mv new toolkit
  rm -r apt files nvidia-cuda-toolkit_*.deb
  touch ready
fi
exec python3 "$source/tests/cuda/compile_cuda_12.py" "$source" "$build" "$base/toolkit"
