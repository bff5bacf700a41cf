#!/bin/bash
# Runs that are watched from outside: watch_test.sh MILLRACE quick, or readers BUILD. quick: `millrace top` on a run that goes on, is
# killed, goes on again and ends; its events and its file for Prometheus. readers: its events in TensorBoard
# itself, its file in Prometheus' own parser for Python.
set -u
millrace=$1
self=$(dirname "$(readlink -f "$0")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() { echo "FAILED: $*"; failures=$((failures + 1)); }
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
train() { exec "$millrace" train -c net.cfg --run.dir "$@"; }  # DIR KEYS...; in the background
until_there() {  # COMMAND...: until it succeeds
  for _ in $(seq 400); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.02
  done
  complain "never: $*"
}
# shows TEXT...: each in what `top` prints.
shows() {
  "$millrace" top --once run >shown 2>err || complain "top ended with $?"
  for text in "$@"; do grep -qE -- "$text" shown || { complain "top does not say '$text'"; cat shown err; }; done
}
figure() { sed -n "s/^millrace_$1{.*} //p" run.prom; }

# go_on STEPS: from the newest checkpoint on, so many more.
go_on() {
  newest=$(cd run/checkpoints && printf '%s\n' step-*.h5 | sed -n '$s/^step-0*\([0-9]*\)\.h5$/\1/p')
  end=$((newest + $1))
  train run --train.steps $end >log 2>&1 &
  wait $! || { complain "the run failed"; cat log; }
  grep -q "^resumed at step $newest of $end" log || complain "it did not resume at step $newest"
}

case $2 in
quick)
  "$millrace" top --once run >shown 2>err
  [ $? -eq 3 ] && grep -q "^error: no run.json in run" err || complain "no run, and no word of it"
  train run >log 2>&1 &
  pid=$!
  until_there test -e run/checkpoints/latest
  shows "^run: running, epoch [0-9]+$" "step [0-9]+ of 1000000, [0-9]+ %, left " "^loss    [0-9.]+ [▁▂▃▄▅▆▇█]+ steps [0-9]+ to" \
    "samples/s now, .* on average" "^step    [dcfbaor]+$" "^ +.*forward [0-9]+ %" "^bound   [a-z]+-bound in" "^saved   step [0-9]+, [0-9]+ s ago" \
    "^where   1 rank on $(hostname), .*fp32"
  grep -q $'\033' shown && complain "colors in a file"
  [ -z "$(OMPI_COMM_WORLD_RANK=1 "$millrace" top --once run)" ] || complain "under mpirun the second rank speaks, too"
  [ "$(figure run_active)" = 1 ] || complain "the run is not active: $(cat run.prom)"
  kill -9 $pid
  wait $pid 2>/dev/null
  touch -d '1 minute ago' run/metrics.jsonl
  touch -d '2 minutes ago' run/run.json
  shows "^run: gone: its process no longer exists, the last step was 1:0[0-9] ago"
  if script -qec true terminal </dev/null >/dev/null 2>&1; then  # two on a small terminal: drawn in place, each in two lines
    COLUMNS=70 LINES=8 script -qfec "exec '$millrace' top --every 100ms run later" typescript </dev/null >/dev/null &
    terminal=$!
    until_there grep -q $'\033\[[0-9]A' typescript
    train later --log.prometheus later.prom >>log 2>&1 &
    pid=$!
    until_there grep -q "later.*running" typescript
    kill -INT "$(pgrep -P $terminal)" || complain "nothing to interrupt"
    wait $terminal || complain "interrupted, top ended with $?"
    grep -q $'\033\[?25l' typescript || complain "the cursor was not hidden"
    tail -c 100 typescript | grep -q $'\033\[?25h' || complain "the cursor was not shown again"
    grep -q "later.*not started yet" typescript || complain "no word of the run to come"
    kill -USR2 $pid
    wait $pid
    [ "$(sed -n 's/^millrace_run_exit_code{.*} //p' later.prom)" = 75 ] || complain "later.prom does not say that the run was stopped"
  else
    echo "top on a terminal: skipped, no pseudo-terminals here"
  fi
  go_on 100
  shows "^run: finished" "step $end of $end, 100 %" "^result  validation loss [0-9.]+, top-1 [0-9.]+ %" "^saved   step $end, "
  [ "$(figure run_active) $(figure run_exit_code) $(figure step) $(figure checkpoint_step) $(figure steps_total)" = "0 0 $end $end 100" ] ||
    complain "run.prom: $(cat run.prom)"
  [ "$(find run/tensorboard -name 'events.out.tfevents.*' | wc -l)" -eq 2 ] || complain "not one file of events a start"
  ;;
readers)  # BUILD: where the virtual environment stays
  venv=$3/readers
  python=$venv/bin/python
  ready() { "$python" -c "import tensorboard.main, prometheus_client" 2>/dev/null; }
  if ! ready; then
    rm -rf "$venv"
    { python3 -m venv "$venv" && timeout 400 "$venv/bin/pip" install --quiet tensorboard prometheus_client 'setuptools<81'; } >"$venv.log" 2>&1
  fi
  ready || { echo "readers: skipped, no virtual environment with TensorBoard and prometheus_client ($(tail -n 1 "$venv.log"))"; exit 77; }
  train run --train.steps 70 --checkpoint.every 30 --checkpoint.keep 20 >log 2>&1 &
  wait $! || { complain "the run failed"; cat log; }
  for file in run/checkpoints/step-*.h5; do  # as if it had been killed: it goes on from step 30
    [ "$file" '>' run/checkpoints/step-00000030.h5 ] && rm "$file"
  done
  echo step-00000030.h5 >run/checkpoints/latest
  go_on 70
  "$python" "$self/prometheus_test.py" run.prom || complain "Prometheus does not read the file"
  "$python" "$self/tensorboard_test.py" run || complain "TensorBoard does not show what was trained"
  ;;
*) complain "no case $2" ;;
esac
[ $failures -eq 0 ]
