#!/bin/sh
# The program from outside: cli_test.sh MILLRACE MPIEXEC solo|ranks
set -u
millrace=$1
mpiexec=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() { echo "FAILED: $*"; cat out err; failures=$((failures + 1)); }
# expect CODE TEXT COMMAND...: the exit code, and TEXT in exactly one line of the output.
expect() {
  code=$1 text=$2
  shift 2
  "$@" >out 2>err
  got=$?
  [ $got -eq "$code" ] || complain "$* ended with $got, not $code"
  [ "$(cat out err | grep -cF -- "$text")" -eq 1 ] || complain "$* did not say '$text' exactly once"
}

printf '[train]\nstep = 5\n' >typo.cfg
printf '[data]\ntrain = none-*.h5\n' >data.cfg

if [ "$3" = solo ]; then
  expect 0 "usage: millrace COMMAND" "$millrace" --help
  expect 0 "millrace 0." "$millrace" --version
  expect 2 "error: 'trian' is no command" "$millrace" trian
  for command in train eval pack inspect plan bench; do
    expect 0 "usage: millrace $command" "$millrace" $command --help
  done
  expect 2 "cannot open none.cfg (No such file or directory)" "$millrace" train -c none.cfg
  expect 2 "no configuration file. give one with -c FILE" "$millrace" train
  "$millrace" inspect 2>&1 | grep -q "CUDA is usable" ||
    expect 2 "set run.device = cpu (or auto)" "$millrace" train -c /dev/null --run.device cuda --data.train x.h5
  expect 3 "none-*.h5" "$millrace" train -c data.cfg
  expect 3 "nothing is called none.h5" "$millrace" inspect none.h5
  "$millrace" train -c data.cfg --train.steps 7 --print-config >resolved.cfg || complain "--print-config failed"
  "$millrace" train -c resolved.cfg --print-config >again.cfg || complain "--print-config failed on its own output"
  cmp resolved.cfg again.cfg || complain "--print-config does not print itself"
  expect 0 "steps = 7" cat resolved.cfg
else
  expect 0 "usage: millrace train" "$mpiexec" -n 2 "$millrace" train --help
  expect 2 "error: typo.cfg:2: unknown key train.step. did you mean train.steps?" "$mpiexec" -n 2 "$millrace" train -c typo.cfg
  [ "$(grep -c 'error:' err)" -eq 1 ] || complain "a wrong key gave more than one error"
  expect 2 "error: command line: unknown key train.st. did you mean --train.steps?" "$mpiexec" -n 2 "$millrace" train --train.st 5
  expect 3 "none-*.h5" "$mpiexec" -n 2 "$millrace" train -c data.cfg
  expect 3 "nothing is called none.idx" "$mpiexec" -n 2 "$millrace" pack --x none.idx --out shards
fi

[ $failures -eq 0 ]
