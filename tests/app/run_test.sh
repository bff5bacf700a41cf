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
[test]
force_overflow_at = 20
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
  train 2 parts --test.all_reduce_delay 5 >>log 2>&1 &
  pid=$!
  until_step parts 5
  touch parts/STOP
  wait $pid
  expect_code 75 $? "the run stopped by a file"
  train 2 parts --test.all_reduce_delay 5 >>log 2>&1 &
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
  train 2 parts --test.all_reduce_delay 5 >>log 2>&1 &
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
  train 2 parts --checkpoint.every 7 --test.all_reduce_delay 5 >>log 2>&1 &
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
order)  # block shuffle is resumed in the middle of an epoch, but not with another order
  blocks="--data.shuffle block --data.shuffle_block 8 --optim.schedule constant"
  train 2 whole $blocks --data.shuffle_window 60 --train.steps 20 >log 2>&1
  train 2 parts $blocks --data.shuffle_window 60 --train.steps 10 >>log 2>&1
  train 2 parts $blocks --data.shuffle_window 32 --train.steps 20 >refused 2>&1
  expect_code 2 $? "going on with another window"
  grep -q "another order of samples (blocks of 8 rows, windows of 8 blocks then, .* 4 blocks now)" refused || { complain "no word of the order"; cat refused; }
  train 2 parts $blocks --data.shuffle_window 60 --train.steps 20 >>log 2>&1
  same_run whole parts
  train 1 random --train.steps 10 >>log 2>&1
  train 1 random $blocks --train.steps 20 >refused 2>&1
  expect_code 2 $? "going on from a random order with blocks"
  train 1 random --data.shuffle_window 60 --train.steps 20 >refused 2>&1
  expect_code 2 $? "a window without blocks"
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
  train 2 overlapped --comm.overlap on --comm.progress thread --comm.bucket_size 1KiB >log 2>&1
  same_run plain overlapped
  ;;
diverged)
  train 2 run --run.precision fp32 --test.force_overflow_at 12 --checkpoint.every 5 --log.every 0 >log 2>&1
  expect_code 4 $? "a run whose loss is not finite"
  [ "$(grep -c 'error:' log)" -eq 1 ] || complain "the error was not said once"
  grep -q "lower optim.lr" log || complain "no advice"
  [ -e run/checkpoints/step-00000010.h5 ] || complain "the last good checkpoint is gone"
  grep -q '"status": "diverged"' run/summary.json || complain "summary.json says nothing"
  grep -q '^step 12/.*| not finite' log || complain "the step's line does not say what it met"
  grep -q overflow log && complain "an overflow without a loss scale"
  train 2 scaled --train.steps 21 --log.every 0 >log 2>&1
  grep -q '^step 20/.*| overflow, skipped' log || complain "no word of the step that a loss scale lost"
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
    train 2 disk/$freed --checkpoint.every 4 --test.all_reduce_delay 10 --log.tensorboard on >log 2>&1 &
    pid=$!
    until_step disk/$freed 6
    dd if=/dev/zero of=disk/filler bs=4k 2>/dev/null
    if [ $freed = soon ]; then
      for _ in $(seq 200); do  # until both have been met
        grep -q "^warning: checkpoint of step" log && grep -q "the lines wait" log && break
        sleep 0.05
      done
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
    [ "$(grep -c "events for TensorBoard" log)" -le 1 ] || complain "said more than once"
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
files)  # metrics.jsonl and summary.json have all that is promised, and their figures agree
  train 2 run --run.precision fp32 --test.force_overflow_at -1 >log 2>&1
  expect_code 0 $? "the run"
  for key in step epoch samples loss lr grad_norm loss_scale samples_per_second step_ms data_wait_ms copy_ms forward_ms backward_ms \
    communication_ms optimizer_ms other_ms; do
    [ "$(grep -cE "[{,]\"$key\":-?[0-9][0-9.e+-]*[,}]" run/metrics.jsonl)" -eq 42 ] || complain "not every line of metrics has a number $key"
  done
  awk -F'[:,{}"]+' '{ for (i = 2; i < NF; i += 2) v[$i] = $(i + 1)
    if (v["step"] != NR || v["samples"] != 500 * int((NR - 1) / 14) + (NR % 14 ? 36 * (NR % 14) : 500)) exit 1
    sum = v["data_wait_ms"] + v["copy_ms"] + v["forward_ms"] + v["backward_ms"] + v["communication_ms"] + v["optimizer_ms"] + v["other_ms"]
    if (sum < 0.99 * v["step_ms"] || sum > 1.01 * v["step_ms"] || v["samples_per_second"] <= 0) exit 1 }' run/metrics.jsonl ||
    complain "samples have a gap, or the phases of a step are not its time"
  value() { sed -n "s/^  \"$1\": \([^,]*\),\{0,1\}$/\1/p" run/summary.json; }
  [ "$(value status) $(value steps) $(value samples)" = '"finished" 42 1500' ] || complain "summary.json: $(value status) $(value steps) $(value samples)"
  last=$(sed -n 's/.*): validation loss \([0-9.]*\), top-1 \([0-9.]*\) .*/\1 \2/p' log | tail -n 1)
  shown=$(LC_ALL=C awk -v l="$(value valid_loss)" -v a="$(value valid_accuracy)" 'BEGIN { printf "%.4f %.2f", l, 100 * a }')
  [ "$last" = "$shown" ] || complain "the log says validation '$last', summary.json '$shown'"
  awk -v r="$(value samples_per_second)" -v t="$(value seconds)" 'BEGIN { exit !(r > 1500 / t && r < 1e9) }' || complain "samples_per_second is $(value samples_per_second)"
  # The account: on each rank the phases sum to the wall time, which is the run's.
  awk -v t="$(value seconds)" -F'[:,] *' '/"seconds": \{/ { inside = 1; sum = phases = 0; next } inside && /}/ { inside = 0 } inside { sum += $2; ++phases }
    /"wall_seconds": [0-9]/ { ++ranks; if (phases != 10 || sum < 0.99 * $2 || sum > 1.01 * $2 || $2 < 0.5 * t || $2 > 1.01 * t) bad = 1 }
    END { exit bad || ranks != 2 }' run/summary.json || { complain "the account is not whole"; cat run/summary.json; }
  # Its price, by its own figures; steps here take milliseconds.
  awk -F'[:,] *' '/"mark_seconds": / { cost = $2 } /"marks_per_step": / { marks = $2 }
    /"mean": / { ++ranks; if (marks < 20 || cost <= 0 || marks * cost > 0.005 * $2) bad = 1 } END { exit bad || ranks != 2 }' run/summary.json ||
    { complain "measuring costs more than half a per cent of a step"; grep -E '"mark|"mean"' run/summary.json; }
  for key in findings hints copy_seconds input_pass queue_depths first_batch_seconds capacity sums exposed loss_scales p99 resident_bytes preempted checkpoints evaluations step_flops; do
    grep -q "\"$key\": " run/summary.json || complain "summary.json has no $key"
  done
  for phase in startup data_wait copy forward backward communication optimizer evaluation checkpoint other; do
    grep -A 4 "^      \"$phase\": {" run/summary.json | grep -c '"\(min\|median\|max\)": ' | grep -qx 3 || complain "the account has no $phase"
  done
  ;;
eval)  # the same figures at any number of ranks, those that the run saw at its end
  train 2 run >log 2>&1
  last=$(sed -n 's/.*\((step 42)\): \(validation .*\)/\2/p' log | tail -n 1)
  for ranks in 1 2 3; do
    "$mpiexec" --bind-to none -n $ranks "$millrace" eval run >seen 2>>log
    expect_code 0 $? "eval at $ranks ranks"
    [ "$(cat seen)" = "step 42: $last" ] && [ "$last" ] || complain "eval at $ranks ranks says '$(cat seen)', the run '$last'"
  done
  case $last in *" of 100") ;; *) complain "not each of the 100 samples counted: $last" ;; esac
  older=run/checkpoints/step-00000014.h5
  "$mpiexec" --bind-to none -n 2 "$millrace" eval -c net.cfg --checkpoint $older >seen 2>>log
  expect_code 0 $? "eval of an older checkpoint"
  grep -q "^step 14: $(sed -n 's/.*(step 14): //p' log)$" seen || complain "the older checkpoint has other figures: $(cat seen)"
  ;;
walltime)  # time runs out, by run.walltime and by Slurm's word: a checkpoint, 75, and the same run afterwards
  set -- --checkpoint.every none --train.evaluate off
  train 2 whole "$@" >log 2>&1
  train 2 parts "$@" --test.all_reduce_delay 30 --run.walltime 3s --run.stop_margin 2500ms >>log 2>&1
  expect_code 75 $? "the run with little time"
  first=$(steps_of parts)
  [ "$first" -gt 0 ] && [ "$first" -lt 42 ] || complain "stopped after $first steps"
  [ -e "parts/checkpoints/$(printf 'step-%08d.h5' "$first")" ] || complain "no checkpoint of the last step, $first"
  SLURM_JOB_END_TIME=$(($(date +%s) + 4)) train 2 parts "$@" --test.all_reduce_delay 30 --run.stop_margin 3s >>log 2>&1
  expect_code 75 $? "the run whose job ends"
  second=$(steps_of parts)
  [ "$second" -gt "$first" ] && [ "$second" -lt 42 ] || complain "stopped after $second steps, first after $first"
  [ "$(grep -c "^stopped early (end of the job's time)" log)" -eq 2 ] || complain "not said why"
  train 2 parts "$@" >>log 2>&1
  expect_code 0 $? "the resumed run"
  same_run whole parts
  ;;
must)  # run.resume: must fails without a checkpoint and goes on with one; never begins anew
  "$millrace" train -c net.cfg --run.dir run --run.precision fp32 --run.resume must >log 2>&1
  expect_code 3 $? "must without a checkpoint"
  [ "$(grep -c . log)" -eq 1 ] && grep -q "^error: run.resume = must, but there is no checkpoint in run/checkpoints" log || complain "not said in one line"
  train 2 run --train.steps 9 --optim.schedule constant >log 2>&1
  train 2 run --train.steps 12 --optim.schedule constant --run.resume must >log 2>&1
  expect_code 0 $? "must with a checkpoint"
  grep -q "^resumed at step 9 of 12" log || complain "must did not go on"
  fields run >before
  train 2 run --train.steps 5 --optim.schedule constant --run.resume never >log 2>&1
  expect_code 0 $? "never"
  grep -q "^resumed" log && complain "never went on"
  fields run | cmp - <(head -n 5 before) || complain "never did not begin anew"
  [ "$(cd run/checkpoints && echo step-*)" = step-00000005.h5 ] || complain "old checkpoints were left: $(ls run/checkpoints)"
  # A new run that is killed is not told as that one's end.
  "$millrace" train -c net.cfg --run.dir run --run.threads 1 --train.epochs 2000 --run.resume never >>log 2>&1 &
  pid=$!
  for _ in $(seq 400); do grep -q '"resumed_at_step": 0' run/run.json && grep -q '"steps": 28000' run/run.json && [ "$(steps_of run)" -ge 2 ] && break; sleep 0.02; done
  kill -9 $pid
  wait $pid 2>/dev/null
  [ -e run/summary.json ] && complain "the old run's summary was left"
  "$millrace" report run >>log 2>&1
  expect_code 0 $? "the report of a killed run"
  grep -q "interrupted" run/report.html || complain "the killed run has an end"
  ;;
samples)  # any number of ranks sees the same samples, crops and dropout: with weights that stand still the losses are the same, but for the
  # order in which doubles are summed
  set -- --run.precision fp32 --optim.lr 0 --test.force_overflow_at -1 --train.evaluate off
  losses() { LC_ALL=C awk -F'[:,]' '{ printf "%d %.12f\n", $6, $8 }' "$1/metrics.jsonl"; }
  for ranks in 1 2 3; do
    train $ranks run$ranks "$@" >log 2>&1
    expect_code 0 $? "the run on $ranks ranks"
    losses run1 >one && losses run$ranks >two && cmp one two || { complain "$ranks ranks see other samples than one"; diff one two | head -4; }
  done
  [ "$(cut -d ' ' -f 2 one | sort -u | wc -l)" -eq 42 ] || complain "steps have the same loss: they would not tell samples apart"
  train 2 parts "$@" --train.steps 17 >log 2>&1
  train 3 parts "$@" >>log 2>&1
  losses parts | cmp - one || complain "two ranks, then three see other samples"
  ;;
predict)  # from the figures of a finished run; what is not known is asked for
  "$millrace" train -c net.cfg --run.dir run --train.steps 12 --run.threads 1 >log 2>&1
  expect_code 0 $? "the run to predict from"
  steps() { sed -n 's/^ *"step": \([0-9.e+-]*\),*$/\1/p' seen; }
  "$millrace" scaling run --ranks 1,2,8 --link 1Mb/s --latency 100 >seen 2>&1
  [ $? -eq 2 ] && grep -q "^error: .*--latency: '100' has no unit. write 100us" seen || complain "a latency without a unit: $(cat seen)"
  "$millrace" scaling run --ranks 1,2,8 --link 1Mb/s --latency 100us --json >seen 2>>log
  expect_code 0 $? "predict"
  # Of the run; then on 1, 2 and 8 ranks with its batch, and with its samples a rank.
  [ "$(steps | wc -l)" -eq 7 ] && steps | awk 'NR == 1 { run = $1 } (NR == 2 || NR == 5) && ($1 < 0.999 * run || $1 > 1.001 * run) { bad = 1 }
    NR == 6 { two = $1 } END { exit bad || two <= run || $1 <= two }' || complain "one rank is not as measured, or more are not slower: $(steps | paste -sd ' ')"
  "$millrace" scaling run --ranks 2,64 --link 400Gb/s >seen 2>>log
  grep -qE "^(scales to|does not scale at) " seen && grep -q "^weak: 36 samples per rank" seen && grep -q "fewer than one sample a rank" seen || complain "predict says: $(cat seen)"
  grep -q "^warning: .* is of an earlier launch" seen log && complain "an earlier launch is reported, but there is only one"
  cp -r run older && sed -i 's/"started": "[^"]*"/"started": "2200-01-01T00:00:00Z"/' older/run.json
  "$millrace" scaling older --ranks 2 --link 400Gb/s >seen 2>&1
  expect_code 0 $? "predict from an earlier start"
  [ "$(grep -c "^warning: older/summary.json is of an earlier launch of the run than run.json" seen)" -eq 1 ] || complain "the earlier launch is not reported: $(cat seen)"
  for words in "--ranks 2" "--ranks 2 --measure" "--ranks 2 --link 400"; do
    "$millrace" scaling run $words >seen 2>&1
    expect_code 2 $? "scaling $words"
    [ "$(grep -c "^error: command line: " seen)" -eq 1 ] || complain "scaling $words says: $(cat seen)"
  done
  "$millrace" scaling nowhere --ranks 2 --link 1Gb/s >seen 2>&1
  expect_code 3 $? "predict without a run"
  "$mpiexec" --bind-to none -n 2 "$millrace" scaling run --ranks 2 --ranks-per-node 2 --measure >seen 2>>log
  expect_code 0 $? "predict --measure"
  grep -q "^links (measured on 2 ranks of 1 node): " seen || complain "nothing was measured: $(cat seen)"
  "$mpiexec" --bind-to none -n 2 "$millrace" scaling run --measure >seen 2>log  # as the help has it: as far as it is known
  expect_code 0 $? "predict --measure without --ranks"
  grep -q "^warning: the link between nodes is unknown: predicting only up to the 2 ranks of one node" log || complain "not said where it ends: $(cat log)"
  [ "$(grep -cE "^ +2 +72 " seen)" -eq 1 ] && ! grep -qE "^ +4 " seen || complain "predict --measure without --ranks: $(cat seen)"
  ;;
*) complain "no case $3" ;;
esac
[ $failures -eq 0 ] || { tail -n 20 log; exit 1; }
