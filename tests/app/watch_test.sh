#!/bin/bash
# A run can be watched from outside. quick: `millrace top` on a run that trains, is killed, continues and
# ends, and the event and Prometheus files of the run. readers: TensorBoard and the parser of Prometheus
# read these files; both are installed into a virtual environment in the build folder.
# Usage: watch_test.sh MILLRACE MPIEXEC quick|readers
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"
source "$root/tests/support/python.sh"
unset COLUMNS LINES NO_COLOR
export LC_ALL=C.UTF-8 TERM=xterm

cat >net.cfg <<'CFG'
[data]
train = synthetic:images:rows=400,shape=6x6x1,classes=4
valid = synthetic:images:rows=50,shape=6x6x1,classes=4,seed=9
[train]
global_batch = 20
steps = 1000000
[optim]
schedule = constant
[checkpoint]
every = 200
[log]
tensorboard = on
prometheus = run.prom
prometheus_every = 100ms
CFG

# expect_top PATTERN...: checks that the output of `top` matches each pattern.
expect_top() {
  local pattern
  expect_exit 0 "$millrace" top --once run
  for pattern in "$@"; do expect_line "$pattern" out; done
}
# gauge NAME [FILE]: prints the value of a metric in the Prometheus file.
gauge() { sed -n "s/^millrace_$1{.*} //p" "${2:-run.prom}"; }

# continue_run STEPS: trains that many steps from the newest checkpoint on. Sets $last to the last step.
continue_run() {
  local newest
  newest=$(printf '%s\n' run/checkpoints/step-*.h5 | sed -n '$s/.*step-0*\([0-9]*\)\.h5$/\1/p')
  last=$((newest + $1))
  expect_exit 0 train 1 run --train.steps $last
  expect_line "^resumed at step $newest of $last"
}

case_quick() {
  local top run
  expect_says 3 '^error: .*run\.json' "$millrace" top --once run
  start train 1 run
  wait_for test -e run/checkpoints/latest
  expect_top '^run: running, epoch [0-9]+$' 'step [0-9]+ of 1000000, [0-9]+ %, left ' '^loss    [0-9.]+ [▁▂▃▄▅▆▇█]+ steps [0-9]+ to' \
    'samples/s now, .* on average' '^step    [dcfbaor]+$' '^ +.*forward [0-9]+ %' '^bound   [a-z]+-bound ' '^saved   step [0-9]+, [0-9]+ s ago' \
    "^where   1 rank on $(hostname), .*fp32"
  expect_no_line $'\033' out  # no colors in a file
  expect_equal "output of the second rank" "" "$(OMPI_COMM_WORLD_RANK=1 "$millrace" top --once run)"
  expect_equal "run_active of the running run" 1 "$(gauge run_active)"
  kill -9 "$pid"
  wait "$pid" || true
  pid=
  touch -d '1 minute ago' run/metrics.jsonl
  touch -d '2 minutes ago' run/run.json
  expect_top '^run: gone: .* 1:0[0-9] ago'
  if script -qec true terminal </dev/null >/dev/null 2>&1; then watch_on_terminal; else echo "skipped: top on a terminal, because pseudo-terminals are not available"; fi
  continue_run 100
  expect_top '^run: finished' "step $last of $last, 100 %" '^result  validation loss [0-9.]+, top-1 [0-9.]+ %' "^saved   step $last, "
  expect_equal "numbers of run.prom" "0 0 $last $last 100" "$(gauge run_active) $(gauge run_exit_code) $(gauge step) $(gauge checkpoint_step) $(gauge steps_total)"
  expect_equal "files of events, one for each start," 2 "$(find run/tensorboard -name 'events.out.tfevents.*' | wc -l)"
}
# Two runs on a small terminal are drawn in place, each in two lines.
watch_on_terminal() {
  COLUMNS=70 LINES=8 script -qfec "exec '$millrace' top --every 100ms run later" typescript </dev/null >/dev/null &
  top=$!
  wait_for_line $'\033\\[[0-9]A' typescript
  start train 1 later --log.prometheus later.prom
  wait_for_line 'later.*running' typescript
  kill -INT "$(pgrep -P $top)"
  wait $top || complain "expected that top exits with 0 when it is interrupted, but it exited with $?"
  expect_line $'\033\\[\\?25l' typescript  # the cursor was hidden
  expect_line $'\033\\[\\?25h' <(tail -c 100 typescript)  # and is shown again
  expect_line 'later.*not started yet' typescript
  mkfifo keys
  timeout 20 script -qfec "exec '$millrace' top --every 30s run" shown <keys >/dev/null &
  top=$!
  exec 3>keys
  wait_for_line 'step [0-9]+ of 1000000' shown
  printf q >&3
  wait $top || complain "expected that the key q ends top, but it exited with $?"
  exec 3>&-
  kill -USR2 "$pid"
  expect_end 75
  expect_equal "run_exit_code of the stopped run" 75 "$(gauge run_exit_code later.prom)"
}

case_readers() {
  local file
  python_environment readers tensorboard.main,prometheus_client tensorboard prometheus_client 'setuptools<81'
  expect_exit 0 train 1 run --train.steps 70 --checkpoint.every 30 --checkpoint.keep 20
  # Removes the newer checkpoints, as if the run had been killed: it continues from step 30.
  for file in run/checkpoints/step-*.h5; do [[ ! $file > run/checkpoints/step-00000030.h5 ]] || rm "$file"; done
  echo step-00000030.h5 >run/checkpoints/latest
  continue_run 70
  expect_exit 0 "$python" "$tests/readers/prometheus_test.py" run.prom
  expect_exit 0 "$python" "$tests/readers/tensorboard_test.py" run
}

run_case "$3"
