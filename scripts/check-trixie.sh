#!/bin/bash
# Builds this tree in a clean Debian 13 and runs the tests there (Open MPI 5, HDF5 1.14, oneDNN 3). Only
# the packages of scripts/deps.sh are installed. Needs root and debootstrap; without them it exits with
# 77 (skipped) and prints the reason.
#
# Tests that depend on none of these libraries, tests of measured gains, and those with many ranks and a short time-out
# are neither built nor run. Those of data and train use the libraries through io and comm, and the trainings of app.*
# cover them.
#
# The system is kept in build-trixie/, so a second run only builds what changed. MILLRACE_SUITE and
# MILLRACE_MIRROR select another Debian or Ubuntu release and where it is downloaded from.
# The sources are copied; no folder of the host is mounted inside. /proc, /sys, /dev/shm and /dev/pts are
# mounted in a separate mount namespace, which ends with the script. (Without /sys hwloc prints a warning at
# every start.)
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${MILLRACE_SUITE:-trixie}
mirror=${MILLRACE_MIRROR:-}
base=$PWD/build-$suite
root=$base/root
skip() {
  echo "skipped: $1"
  exit 77
}
[ "$(id -u)" = 0 ] || skip "a chroot needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed. run: apt-get install debootstrap"
unshare --mount true 2>/dev/null || skip "mount namespaces are not available"

if [ ! -e "$base/ready" ]; then
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} >"$base/debootstrap.log" 2>&1 || {
    tail -n 5 "$base/debootstrap.log" >&2
    skip "$suite cannot be downloaded"
  }
  touch "$base/ready"
fi
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
apt-config dump | grep -E '^Acquire::(http|https)::(Proxy|CaInfo)' >"$root/etc/apt/apt.conf.d/90host" || true

# Sessions of killed MPI programs of an earlier run, which mpirun takes for its own when it gets the same process number.
find "$root/tmp" -mindepth 1 -maxdepth 1 -exec rm -rf --one-file-system {} +
# Copies the files that git tracks or would add. Their modification times are kept for incremental builds.
mkdir -p "$root/millrace"
find "$root/millrace" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf --one-file-system {} +
if git rev-parse --git-dir >/dev/null 2>&1; then git ls-files -z --cached --others --exclude-standard; else find . -type f ! -path './build*' -print0; fi |
  tar --null --no-recursion --ignore-failed-read -T - -cf - | tar -xf - -C "$root/millrace"

export ROOT=$root JOBS=${JOBS:-$(nproc)}
exec unshare --mount --pid --fork --kill-child --propagation private bash -euc '
  mount -t proc proc "$ROOT/proc"
  mount -t sysfs -o ro sysfs "$ROOT/sys" || export HWLOC_HIDE_ERRORS=2
  mkdir -p "$ROOT/dev/shm" && mount -t tmpfs -o size=1g tmpfs "$ROOT/dev/shm"
  mkdir -p "$ROOT/dev/pts" && mount -t devpts -o newinstance,ptmxmode=666 devpts "$ROOT/dev/pts" && ln -sf pts/ptmx "$ROOT/dev/ptmx" || true
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 JOBS="$JOBS" HWLOC_HIDE_ERRORS="${HWLOC_HIDE_ERRORS:-1}" chroot "$ROOT" bash -euc "
    cd /millrace
    scripts/deps.sh
    cmake -G Ninja -S . -B build -DCMAKE_CXX_FLAGS_RELEASE=-O1
    cmake --build build -j \$JOBS --target millrace test_ops test_comm test_mpi test_io make_fields faulty_files faulty_calls
    build/millrace --version
    ctest --test-dir build -LE long -R \"^(ops|comm|mpi|io|app)(\.|\$)\" -E \"^app\.(options|jobs|make|tune|diagnose|balance|watch|report|networks|samples|deadline.hosts|cli.solo|cli.inputs|cli.gpu_plan)|^mpi\.(3|4|4.hosts_of_3)\$\" -j 2 --output-on-failure"'
