#!/bin/bash
# What make says of libraries and tools: make_test.sh SOURCE_DIR BUILD_DIR
set -u
source_dir=$1
build_dir=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
complain() { echo "FAILED: $*"; cat "$folder/log"; failures=$((failures + 1)); }
unset MAKEFLAGS MAKELEVEL MFLAGS CMAKE_GENERATOR

# Configured and built already: everything is told again. A cmake with nothing to do stands for the build.
mkdir "$folder/bin" "$folder/built"
printf '#!/bin/sh\n' >"$folder/bin/cmake"
chmod +x "$folder/bin/cmake"
touch "$folder/built/cmake_install.cmake"
cp "$build_dir/found.txt" "$folder/built/" || complain "the build folder has no found.txt"
for _ in 1 2; do
  PATH=$folder/bin:$PATH make -C "$source_dir" BUILD="$folder/built" >"$folder/log" 2>&1 || complain "make failed"
  for what in "MPI [0-9]" "parallel HDF5 [0-9]" "Boost.Program_options [0-9]" "zlib [0-9]" "nlohmann JSON [0-9]" "oneDNN /"; do
    [ "$(grep -c "^found    $what" "$folder/log")" -eq 1 ] || complain "make does not say that it found $what"
  done
  for what in mpirun Fashion-MNIST "clang-format 14" ccache; do
    [ "$(grep -cE "^(found    $what$|absent   $what \(Debian package [a-z0-9-]+\): )" "$folder/log")" -eq 1 ] || complain "make does not say whether it found $what"
  done
  [ "$(grep -cE "^(found    CUDA [0-9]|absent   CUDA: )" "$folder/log")" -eq 1 ] || complain "make says nothing of CUDA"
  grep -q "^built $folder/built/millrace" "$folder/log" || complain "make does not say what it built"
done

# A library was missing, which left a cache behind: make looks again, and names the package.
mkdir "$folder/poor"
printf 'CMAKE_DISABLE_FIND_PACKAGE_ZLIB:BOOL=ON\nMILLRACE_TESTS:BOOL=OFF\n' >"$folder/poor/CMakeCache.txt"
make -C "$source_dir" BUILD="$folder/poor" >"$folder/log" 2>&1 && complain "built without zlib"
grep -q "MISSING  zlib.*(Debian package zlib1g-dev)" "$folder/log" || complain "make does not say which package brings zlib"
grep -q "apt-get install zlib1g-dev" "$folder/log" || complain "make does not say how to install what is missing"
grep -q "^MISSING  zlib" "$folder/poor/found.txt" || complain "found.txt does not say that zlib is missing"
[ $failures -eq 0 ]
