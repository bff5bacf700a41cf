#!/bin/bash
# make prints which libraries and tools it found, and which Debian package has a missing one. It prints
# them again when everything is built, and looks for them again after a failure.
# Usage: make_test.sh MILLRACE MPIEXEC
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"
unset MAKEFLAGS MAKELEVEL MFLAGS CMAKE_GENERATOR

# A cmake that does nothing takes the place of the build.
mkdir bin built poor
printf '#!/bin/sh\n' >bin/cmake
chmod +x bin/cmake
touch built/cmake_install.cmake
cp "$build/found.txt" built/
for _ in 1 2; do
  PATH=$PWD/bin:$PATH expect_exit 0 make -C "$root" BUILD="$PWD/built"
  for what in "MPI [0-9]" "parallel HDF5 [0-9]" "Boost.Program_options [0-9]" "zlib [0-9]" "nlohmann JSON [0-9]" "oneDNN /"; do
    expect_lines 1 "^found    $what"
  done
  for what in mpirun Fashion-MNIST "clang-format 14" ccache; do
    expect_lines 1 "^(found    $what$|absent   $what \(Debian package [a-z0-9-]+\): )"
  done
  expect_lines 1 '^(found    CUDA [0-9]|absent   CUDA: )'
  expect_line "^built $PWD/built/millrace"
done

# Configured without zlib: make fails, names the package, and leaves a cache with which it looks again.
printf 'CMAKE_DISABLE_FIND_PACKAGE_ZLIB:BOOL=ON\nMILLRACE_TESTS:BOOL=OFF\n' >poor/CMakeCache.txt
expect_exit 2 make -C "$root" BUILD="$PWD/poor"
expect_line 'MISSING  zlib.*Debian package zlib1g-dev'
expect_line 'apt-get install zlib1g-dev'
expect_line '^MISSING  zlib' poor/found.txt
