#!/bin/bash
# Finds a Python with given modules for a shell test. The test sources tests/app/lib.sh first, for `skip` and $build.
# shellcheck disable=SC2034,SC2154  # $python is for the test; the other variables are those of lib.sh

# find_python MODULE...: sets $python to an interpreter that has these modules, or skips the test.
find_python() {
  for python in python3 /usr/bin/python3; do
    ! "$python" -c "import $(tr ' ' , <<<"$*")" 2>/dev/null || return 0
  done
  skip "no python3 with the modules $*"
}
# python_environment NAME MODULES PACKAGE...: sets $python to the interpreter of a virtual environment in the
# build folder that can import MODULES (separated by commas), or skips the test. pip installs PACKAGES.
python_environment() {
  local venv=$build/$1 modules=$2
  shift 2
  python=$venv/bin/python
  if ! "$python" -c "import $modules" 2>/dev/null; then
    rm -rf "$venv"
    { python3 -m venv "$venv" && timeout 400 "$venv/bin/pip" install --quiet "$@"; } >"$venv.log" 2>&1 || true
    "$python" -c "import $modules" 2>/dev/null || skip "pip cannot install $* ($(tail -n 1 "$venv.log"))"
  fi
}
