#!/bin/bash
# Training from outside: run_test.sh MILLRACE MPIEXEC CASE. Each case is a claim about runs and their files.
set -u
millrace=$1
mpiexec=$2
self=$(readlink -f "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() { echo "FAILED: $*"; failures=$((failures + 1)); }

# All that resume must carry: momentum, batch norm, dropout, augmentation, accumulation 3, a loss scale that falls and grows.
cat >net.cfg <<'CFG'
[run]
precision = fp16
[data]
train = synthetic:images:rows=500,shape=10x10x3,classes=4
valid = synthetic:images:rows=100,shape=10x10x3,classes=4,seed=9
augment = on
crop_pad = 2
[model]
name = layers
layers = conv 8 3x3 pad=same
layers = batchnorm
layers = relu as=trunk
layers = conv 8 3x3 pad=same
layers = batchnorm
layers = add trunk
layers = relu
layers = globalpool
layers = dropout 0.2
layers = linear outputs
[train]
epochs = 3
global_batch = 36
micro_batch = 6
test_force_overflow_at = 20
[optim]
lr = 0.05
scale_interval = 8
loss_scale = 1024
CFG

# train RANKS DIR ARGS...; in the background, $! is mpirun itself.
train() {
  local ranks=$1 dir=$2 exec=
  [ $BASHPID = $$ ] || exec=exec
  shift 2
  $exec "$mpiexec" --bind-to none -n "$ranks" "$millrace" train -c net.cfg --run.dir "$dir" "$@"
}
# The fields that must be equal bit for bit; times differ.
fields() { sed 's/,"samples_per_second".*//' "$1/metrics.jsonl"; }
tensors() { "$millrace" inspect "$1/checkpoints/$(cat "$1/checkpoints/latest")" | grep crc32; }
same_run() {
  fields "$1" >one && fields "$2" >two && cmp one two || { complain "the metrics of $1 and $2 differ"; diff one two | head -4; }
  tensors "$1" >one && tensors "$2" >two && cmp one two || complain "the tensors of $1 and $2 differ"
  [ -s one ] || complain "no tensors in $1"
}
steps_of() { [ -e "$1/metrics.jsonl" ] && wc -l <"$1/metrics.jsonl" || echo 0; }
# until_step DIR N: waits for N lines of metrics.
until_step() {
  for _ in $(seq 400); do
    [ "$(steps_of "$1")" -ge "$2" ] && return
    sleep 0.02
  done
  complain "$1 never reached step $2"
}
expect_code() { [ "$2" -eq "$1" ] || complain "$3 ended with $2, not $1"; }

case $3 in
resume)  # stopped in the middle of an epoch, twice: by a file and by a signal
  train 2 whole >log 2>&1
  expect_code 0 $? "the uninterrupted run"
  grep -q '"skipped":true' whole/metrics.jsonl || complain "no step was skipped"
  train 2 parts --comm.test_delay 5 >>log 2>&1 &
  pid=$!
  until_step parts 5
  touch parts/STOP
  wait $pid
  expect_code 75 $? "the run stopped by a file"
  train 2 parts --comm.test_delay 5 >>log 2>&1 &
  pid=$!
  until_step parts 22
  kill -USR2 $pid
  wait $pid
  expect_code 75 $? "the run stopped by a signal"
  train 2 parts >>log 2>&1
  expect_code 0 $? "the resumed run"
  [ "$(grep -c '^resumed at step' log)" -eq 2 ] || complain "it did not resume twice"
  same_run whole parts
  ;;
terminated)  # SIGTERM to one rank alone: all finish the step, a checkpoint is written, and the rest follows as if nothing was
  train 2 whole >log 2>&1
  train 2 parts --comm.test_delay 5 >>log 2>&1 &
  pid=$!
  until_step parts 5
  kill -TERM "$(pgrep -n -P $pid)"
  wait $pid
  expect_code 75 $? "the terminated run"
  stopped=$(steps_of parts)
  [ -e "parts/checkpoints/$(printf 'step-%08d.h5' "$stopped")" ] || complain "no checkpoint of the last step, $stopped"
  train 2 parts >>log 2>&1
  expect_code 0 $? "the resumed run"
  same_run whole parts
  ;;
killed)  # a rank is killed in the middle: all end, and the next start goes on from the last checkpoint
  train 2 whole --checkpoint.every 7 >log 2>&1
  train 2 parts --checkpoint.every 7 --comm.test_delay 5 >>log 2>&1 &
  pid=$!
  until_step parts 17
  began=$SECONDS
  kill -9 "$(pgrep -n -P $pid)" || complain "nothing to kill"
  wait $pid
  code=$?
  [ $code -ne 0 ] || complain "a killed rank, and mpirun says 0"
  [ $((SECONDS - began)) -le 5 ] || complain "the other rank lived on for $((SECONDS - began)) s"
  train 2 parts --checkpoint.every 7 >>log 2>&1
  expect_code 0 $? "the resumed run"
  same_run whole parts
  ;;
saving)  # killed while checkpoints are written, again and again
  train 2 whole >log 2>&1
  for round in 1 2 3; do
    train 2 parts --checkpoint.every 1 >>log 2>&1 &
    pid=$!
    until_step parts $((round * 6))
    sleep 0.0$((RANDOM % 9))
    # shellcheck disable=SC2046
    kill -9 $(pgrep -P $pid) $pid
    wait $pid
  done
  train 2 parts --checkpoint.every 1 >>log 2>&1
  expect_code 0 $? "the resumed run"
  same_run whole parts
  ;;
damaged)  # the newest checkpoint is damaged or cut: the one before serves
  train 2 run --checkpoint.every 10 >log 2>&1
  newest=run/checkpoints/$(cat run/checkpoints/latest)
  yes damage | dd of="$newest" bs=1 count=2000 seek=$(($(stat -c %s "$newest") / 2)) conv=notrunc 2>/dev/null
  before=$(ls run/checkpoints/step-*.h5 | tail -n 2 | head -n 1)
  truncate -s -1000 "$before"
  "$millrace" inspect "$newest" >log 2>&1
  expect_code 3 $? "inspect of a damaged checkpoint"
  grep -q "^error: $newest" log || { complain "inspect does not say what is damaged"; cat log; }
  train 2 run --checkpoint.every 10 >log 2>&1
  expect_code 0 $? "the run with two damaged checkpoints"
  [ "$(grep -c 'is damaged' log)" -eq 2 ] || { complain "two damaged checkpoints were not reported"; cat log; }
  for f in run/checkpoints/step-*.h5; do truncate -s 100 "$f"; done
  train 2 run >log 2>&1
  expect_code 3 $? "the run without any whole checkpoint"
  ;;
ranks)  # going on with another number of ranks: the same samples follow, and it is said
  train 2 run --train.steps 10 >log 2>&1
  train 3 run --train.steps 20 >log 2>&1
  expect_code 0 $? "the run on three ranks"
  grep -q "resuming with another ranks" log || complain "no warning about the number of ranks"
  fields run | awk -F'[:,]' '{ if ($2 != NR || $6 <= last) exit 1; last = $6 } END { exit NR != 20 }' || complain "steps or samples have a gap"
  ;;
large)  # tensors that the ranks write in parts, of rows that do not divide evenly; AdamW's moments too
  set -- --model.name mlp --model.hidden 1101 --optim.name adamw --run.precision fp32 --train.epochs 1
  train 3 whole "$@" >log 2>&1
  expect_code 0 $? "the run with large tensors"
  "$millrace" inspect "whole/checkpoints/$(cat whole/checkpoints/latest)" >seen
  grep -q "checksums agree" seen || { complain "what was written in parts is not what was in memory"; cat seen; }
  train 3 parts "$@" --train.steps 7 --optim.schedule constant >>log 2>&1
  train 3 parts "$@" --optim.schedule constant >>log 2>&1
  train 3 other "$@" --optim.schedule constant >>log 2>&1
  same_run parts other
  ;;
logs)  # no carriage returns in a file; one line that updates where a terminal is told of
  train 2 run --log.every 1000 >log 2>&1
  grep -q $'\r' log && complain "a carriage return in a log"
  [ "$(grep -c '^step ' log)" -eq 4 ] || complain "$(grep -c '^step ' log) lines of steps: the first three and the last were due"
  MILLRACE_TERMINAL=1 train 1 other >log 2>&1
  grep -q $'\r' log || complain "no updating line for a terminal"
  ;;
memory)  # a /dev/shm without room: said in one line, and the same bits
  train 2 window >log 2>&1
  MILLRACE_TEST_SHM_BYTES=10000 train 2 private >log 2>&1
  expect_code 0 $? "the run without shared memory"
  [ "$(grep -c '/dev/shm is too small' log)" -eq 1 ] || complain "not said in one line"
  same_run window private
  ;;
overlap)  # sums during backward or after it, by a thread or not, in small buckets or one: the same bits
  train 2 plain --comm.overlap off --comm.progress inline >log 2>&1
  train 2 overlapped --comm.overlap on --comm.progress thread --comm.bucket 1KiB >log 2>&1
  same_run plain overlapped
  ;;
diverged)
  train 2 run --run.precision fp32 --train.test_force_overflow_at 12 --checkpoint.every 5 >log 2>&1
  expect_code 4 $? "a run whose loss is not finite"
  [ "$(grep -c 'error:' log)" -eq 1 ] || complain "the error was not said once"
  grep -q "lower optim.lr" log || complain "no advice"
  [ -e run/checkpoints/step-00000010.h5 ] || complain "the last good checkpoint is gone"
  grep -q '"status": "diverged"' run/summary.json || complain "summary.json says nothing"
  ;;
full_disk)  # training goes on while a disk is full; what could not be saved in the end is an error, and the rest follows later
  if [ "${4:-}" != inside ]; then
    unshare --mount true 2>/dev/null || { echo "skipped: no mount namespaces here"; exit 77; }
    cd / && rm -rf "$folder"
    exec unshare --mount "$self" "$1" "$2" "$3" inside
  fi
  mkdir disk && mount -t tmpfs -o size=4m none disk || exit 77
  train 2 whole >log 2>&1
  for freed in later soon; do
    train 2 disk/$freed --checkpoint.every 4 --comm.test_delay 10 >log 2>&1 &
    pid=$!
    until_step disk/$freed 6
    dd if=/dev/zero of=disk/filler bs=4k 2>/dev/null
    if [ $freed = soon ]; then
      sleep 0.4
      rm disk/filler
      wait $pid
      expect_code 0 $? "the run on a disk that was full for a while"
    else
      wait $pid
      expect_code 3 $? "the run whose last checkpoint was not written"
      grep -q '^error: the checkpoint of step 42, the last, was not written' log || complain "not said what is missing"
      rm disk/filler
      ls -a disk/$freed/checkpoints >seen
      grep -q "step-00000004.h5" seen || complain "the first checkpoint is gone"
      grep -q "tmp" seen && complain "half a checkpoint was left"
    fi
    grep -q "^warning: checkpoint of step" log || complain "no word of the full disk"
    grep -q "the lines wait" log || complain "no word of the metrics"
    if [ $freed = later ]; then
      train 2 disk/later --checkpoint.every 4 >>log 2>&1
      expect_code 0 $? "the resumed run"
    fi
    same_run whole disk/$freed
    rm -rf disk/$freed
  done
  umount disk
  ;;
twice)  # two runs in one folder: the second is refused, the first is not disturbed
  train 1 run --train.epochs 2000 >log 2>&1 &  # 28,000 steps: still there when the second comes
  pid=$!
  until_step run 3
  train 1 run >second 2>&1
  expect_code 2 $? "the second run in one folder"
  grep -q "in use by another run" second || complain "the second run was not told why"
  touch run/STOP
  wait $pid
  expect_code 75 $? "the first run"
  ;;
*) complain "no case $3" ;;
esac
[ $failures -eq 0 ] || { tail -n 20 log; exit 1; }
