#!/bin/bash
# The search and the range test on real files: tune_test.sh MILLRACE MPIEXEC FAULTY_FILES CASE. Only what is far outside of a
# busy machine's noise is asked for: FAULTY_FILES is a slow disk.
set -u
millrace=$1
mpiexec=$2
library=$3
case=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() { echo "FAILED: $*"; cat out err; failures=$((failures + 1)); }

awk 'BEGIN { for (r = 0; r < 240; r++) { for (c = 0; c < 100; c++) printf "%d,", (r * 7 + c * c) % 13; print int(r * 7 % 13 / 5) } }' >table.csv
"$millrace" pack --x table.csv --y-name 101 --out set --shard-size 24000 >out 2>err || complain "pack failed"
cat >net.cfg <<'CFG'
[data]
train = set/train-*.h5
reader = direct
workers = 1
[model]
hidden = 8
[train]
global_batch = 8
CFG
slow="env LD_PRELOAD=$library MILLRACE_TEST_FAULTS=train-,4096,100000000,0,1000000000,0.001"

case $case in
search)
  # Each read takes 1 ms, whatever the processor does meanwhile: more workers, or a reader that does not read, are far better.
  $slow "$millrace" tune -c net.cfg --seconds 0.05 --keep train.micro_batch model.fusion data.prefetch --out tuned.cfg >out 2>err || complain "tune failed"
  grep -Eq "^[0-9.]+x, measured with all changes together: .* alternating rounds" out || complain "no measured gain"
  awk 'NR == 1 { exit !($1 + 0 >= 1.25) }' out || complain "hardly faster with a slow disk"
  grep -Eq "^  data.reader +direct -> (mmap|uring) .*x in [0-9] rounds?" out || complain "no table of trials"
  grep -q "^  not tried: comm.bucket_size: a single rank does not communicate" out || complain "what was left out is not said"
  grep -q "^  not tried: model.fusion: it keeps its value (--keep)" out || complain "--keep is not heeded"
  [ ! -e runs ] || complain "tune has trained something"
  # What was printed is what was written, and is a configuration.
  sed -n '/^[#[]/,/^$/p' out | diff - <(cat tuned.cfg; echo) >/dev/null || complain "the file is not what was printed"
  "$millrace" train -c net.cfg -c tuned.cfg --print-config >resolved 2>err || complain "the lines are no configuration"
  while read -r line; do grep -qxF "$line" resolved || complain "'$line' is not in the resolved configuration"; done < <(grep = tuned.cfg)
  # What could not be written in the end is refused before anything is measured.
  mkdir folder
  for path in nowhere/tuned.cfg folder; do
    timeout 15 "$millrace" tune -c net.cfg --seconds 20 --out $path >out 2>err
    [ $? -eq 3 ] && grep -q "^error: .*$path\|^error: cannot write to .*nowhere .*--out" err && [ ! -s out ] || complain "no word about --out $path"
  done
  "$millrace" tune -c net.cfg --keep data.worker >out 2>err
  [ $? -eq 2 ] && grep -q "^error: command line: --keep: 'data.worker' is not searched. one of data.reader, " err || complain "no word about --keep"
  ;;
memory)
  # A micro-batch that does not fit: the search begins with the largest that does, and never exceeds the memory.
  "$millrace" tune -c net.cfg --seconds 0.05 --keep data.reader data.workers data.prefetch model.fusion --run.memory 600k --data.prefetch 4 --train.global_batch 200 --model.hidden 64 \
    >out 2>err || complain "tune failed with little memory"
  grep -q "^the configuration does not run: train.micro_batch: 200 samples at once need" out || complain "it is not said that it does not fit"
  sed -n '/^\[train\]$/,/^$/p' out >tuned.cfg
  "$millrace" plan -c net.cfg -c tuned.cfg --run.memory 600k --data.prefetch 4 --train.global_batch 200 --model.hidden 64 >out 2>err || complain "no plan"
  grep -q "does not fit" out && complain "what was found does not fit"
  # A trial that does not fit stands in the table with its reason, and the search goes on.
  $slow "$millrace" tune -c net.cfg --seconds 0.05 --keep data.reader data.workers train.micro_batch model.fusion --run.memory 300k --data.prefetch 4 >out 2>err ||
    complain "a trial that does not fit ended the search"
  grep -Eq "^  data.prefetch +4 -> auto +failed: train.micro_batch: 8 samples at once need" out || complain "no reason of a failed trial"
  grep -Eq "^  data.prefetch +[0-9]+ -> (2|16) .* ms, baseline " out || complain "after a failed trial no other was made"
  ;;
rates)
  "$mpiexec" --bind-to none -n 2 "$millrace" tune -c net.cfg --lr-range --lr-from 1e-4 --lr-to 1000 --lr-steps 80 --train.global_batch 64 --run.threads 1 --plot curve.svg \
    >out 2>err || complain "the range test failed"
  grep -Eq "^suggested: optim.lr = [0-9.e-]+, .*Smith 2017" out || complain "no rate is suggested"
  grep -q "#" out && grep -q "1e-04" out || complain "no curve"
  [ "$(grep -c "<circle" curve.svg)" -ge 20 ] && tail -n 1 curve.svg | grep -qx "</svg>" || complain "no picture"
  [ ! -e runs ] || complain "something of it stays"
  "$millrace" tune -c net.cfg --lr-steps 30 >out 2>err
  [ $? -eq 2 ] && grep -q "^error: command line: --lr-steps does nothing without --lr-range" err || complain "no word about --lr-steps"
  ;;
stop)  # two ranks, on reads that take far longer than these wait for each other on busy cores; asked to stop in its first trials, it says what it has and ends well
  "$mpiexec" --bind-to none -n 2 ${slow/%0.001/0.02} "$millrace" tune -c net.cfg --seconds 0.3 --run.threads 1 >out 2>err &
  for _ in {1..600}; do grep -q "^trying " err && break; sleep 0.1; done
  kill -USR2 $!
  wait $! || complain "stopped, it did not end with 0"
  grep -q "^the search ended early: asked to stop" out || complain "it is not said that it ended early"
  [ "$(grep -c "^trying " err)" -le 2 ] || complain "it went on trying"
  ;;
free)  # sums sleep most of the step, for however many samples: the global batch is searched when asked for, and what follows for the rate is said, not done
  "$mpiexec" --bind-to none -n 2 "$millrace" tune -c net.cfg --seconds 0.1 --data.reader mmap --run.threads 1 --test.all_reduce_delay 0.02 --model.hidden 400 400 \
    --keep data.reader data.workers data.prefetch comm.bucket_size model.fusion --global-batch free --out tuned.cfg >out 2>err || complain "tune failed"
  grep -Eq "^  train.global_batch +8 -> 16 " out || complain "no other global batch was tried"
  awk 'NR == 1 { exit !($1 + 0 >= 1.25) }' out || complain "sums of 16 ms for 8 samples are hardly slower than for more"
  grep -q "^global_batch = " tuned.cfg && grep -q "^# train.global_batch 8 -> .* linear scaling rule" tuned.cfg || complain "no word about the rate"
  grep -q "^lr" tuned.cfg && complain "the rate was changed"
  ;;
*) complain "no case $case" ;;
esac
[ $failures -eq 0 ]
