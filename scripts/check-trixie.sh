#!/bin/bash
# Builds this tree in a clean Debian 13 with nothing but what scripts/deps.sh installs, and runs the tests there (Open MPI 5, HDF5 1.14, oneDNN 3). Needs root and
# debootstrap; ends with 77 (skipped) and the reason without. The system lies in build-trixie/ and is kept: a second run only builds what
# changed. MILLRACE_SUITE and MILLRACE_MIRROR name another Debian or Ubuntu and where it comes from. Nothing of this machine is mounted inside: the sources are copied,
# and /proc, /sys (which hwloc wants, or it warns on every start), /dev/shm and /dev/pts are mounted in a mount namespace of their own, which ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${MILLRACE_SUITE:-trixie}
mirror=${MILLRACE_MIRROR:-}
base=$PWD/build-$suite
root=$base/root
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "a chroot needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed (apt-get install debootstrap)"
unshare --mount true 2>/dev/null || skip "no mount namespaces here"

if [ ! -e "$base/ready" ]; then
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} >"$base/debootstrap.log" 2>&1 || { tail -n 5 "$base/debootstrap.log" >&2; skip "$suite cannot be fetched"; }
  touch "$base/ready"
fi
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
apt-config dump | grep -E '^Acquire::(http|https)::(Proxy|CaInfo)' >"$root/etc/apt/apt.conf.d/90host" || true

# The files that git knows or would add, with their times, so that make sees what changed.
mkdir -p "$root/millrace"
find "$root/millrace" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf --one-file-system {} +
if git rev-parse --git-dir >/dev/null 2>&1; then git ls-files -z --cached --others --exclude-standard; else find . -type f ! -path './build*' -print0; fi |
  tar --null --no-recursion --ignore-failed-read -T - -cf - | tar -xf - -C "$root/millrace"

export ROOT=$root JOBS=${JOBS:-$(nproc)}
exec unshare --mount --pid --fork --kill-child --propagation private bash -euc '
  mount -t proc proc "$ROOT/proc"
  mount -t sysfs -o ro sysfs "$ROOT/sys" || export HWLOC_HIDE_ERRORS=2
  mkdir -p "$ROOT/dev/shm" && mount -t tmpfs -o size=256m tmpfs "$ROOT/dev/shm"
  mkdir -p "$ROOT/dev/pts" && mount -t devpts -o newinstance,ptmxmode=666 devpts "$ROOT/dev/pts" && ln -sf pts/ptmx "$ROOT/dev/ptmx" || true
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 JOBS="$JOBS" HWLOC_HIDE_ERRORS="${HWLOC_HIDE_ERRORS:-1}" chroot "$ROOT" bash -euc "
    cd /millrace
    scripts/deps.sh
    cmake -G Ninja -S . -B build -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DMILLRACE_TEST_TIMEOUT=60
    cmake --build build -j \$JOBS
    build/millrace --version
    ctest --test-dir build -LE long -j 2 --output-on-failure"'
