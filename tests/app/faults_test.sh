#!/bin/bash
# Files that fail under a run: faults_test.sh MILLRACE MPIEXEC FAULTY_FILES go_on|end. FAULTY_FILES is the library of
# tests/support/faulty_files.cpp, which makes reads of the files fail that MILLRACE_TEST_FAULTS names.
set -u
millrace=$1
mpiexec=$2
library=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() { echo "FAILED: $*"; cat out err; failures=$((failures + 1)); }

# Four shards of 60 rows of 400 bytes, read from byte 4096 on.
awk 'BEGIN { for (r = 0; r < 240; r++) { for (c = 0; c < 100; c++) printf "%d,", (r * 7 + c * c) % 13; print r % 3 } }' >table.csv
"$millrace" pack --x table.csv --y-name 101 --out set --shard-size 24000 --no-shuffle >out 2>err || complain "pack failed"
[ "$(ls set | wc -l)" -eq 4 ] || complain "there are not four shards"
cat >net.cfg <<'CFG'
[data]
train = set/train-*.h5
reader = direct
normalize = off
retry_delay = 1ms
[model]
hidden = 8
[train]
epochs = 2
global_batch = 24
[optim]
schedule = constant
[checkpoint]
every = none
CFG

# run DIR FAULTS0 FAULTS1 ARGS...: two ranks, each with its own faults.
run() {
  local dir=$1 first=$2 second=$3
  shift 3
  FIRST=$first SECOND=$second LIBRARY=$library timeout 30 "$mpiexec" --bind-to none -n 2 bash -c '
    faults=$FIRST
    [ "$OMPI_COMM_WORLD_RANK" -eq 0 ] || faults=$SECOND
    LD_PRELOAD=$LIBRARY MILLRACE_TEST_FAULTS=$faults exec "$@"' - \
    "$millrace" train -c net.cfg --run.dir "$dir" "$@" >out 2>err
}
alone() {
  local dir=$1 faults=$2
  shift 2
  LD_PRELOAD=$library MILLRACE_TEST_FAULTS=$faults "$millrace" train -c net.cfg --run.dir "$dir" "$@" >out 2>err
}
expect() { # CODE TEXT...: the last run's exit code, and each TEXT in exactly one line
  local got=$? code=$1 text
  shift
  [ $got -eq "$code" ] || complain "the run ended with $got, not $code"
  for text in "$@"; do [ "$(cat out err | grep -c -- "$text")" -eq 1 ] || complain "'$text' is not said exactly once"; done
}
fields() { sed 's/,"samples_per_second".*,"unread/,"unread/' "$1/metrics.jsonl"; }
same_run() { cmp <(fields "$1") <(fields "$2") && [ -s "$1/metrics.jsonl" ] || complain "$1 and $2 differ"; }
unread() { awk -F '"unread_samples":' '{ sum += $2 } END { print sum + 0 }' "$1/metrics.jsonl"; }
eio=5 estale=116

if [ "$4" = go_on ]; then
  # Faults that pass change nothing.
  alone whole ""
  expect 0
  alone passing "train-00001,4096,4500,$eio,2,0;train-00002,4096,4500,$estale,1,0"
  expect 0 'warning: cannot read sample .* of set/train-00001.h5 (Input/output' \
    'warning: cannot read sample .* of set/train-00002.h5 (Stale' 'faults: rank 0, set/train-00001.h5: [1-9]'
  same_run whole passing
  # So does one that passes while the files are opened, and a file that is none is said at once.
  alone opening "train-00001,0,1,$eio,2,0"
  expect 0
  same_run whole opening
  alone header "train-00001,8,9,$eio,1,0"  # read by HDF5
  expect 0 'warning: .*set/train-00001.h5.*Input/output error.*tried again'
  same_run whole header
  mkfifo pipe.h5
  alone none "" --data.train pipe.h5
  expect 3 "cannot open pipe.h5 (it is not a regular file)"
  grep -q '"retries": [1-9]' passing/summary.json || complain "the summary counts no try"

  # Samples that cannot be read count for nothing: 60, 181 and 182.
  bad="train-00001,4096,4097,$eio,999999,0;train-00003,4496,4897,$eio,999999,0"
  skip=(--data.on_error skip --data.skip_limit 0.02)
  run two "$bad" "$bad" "${skip[@]}"
  expect 0 'epoch 0: 3 of 240 samples could not be read and were skipped' 'epoch 1: 3 of 240'
  for shard in 1 3; do
    [ "$(grep -c "warning: cannot read sample .*train-0000$shard.h5.*skipped" err)" -le 2 ] || complain "a rank warns twice of shard $shard"
  done
  alone one "$bad" "${skip[@]}"
  expect 0
  alone half "$bad" "${skip[@]}" --train.steps 13
  expect 0
  alone half "$bad" "${skip[@]}"
  expect 0 'resumed at step 13'
  same_run half one
  for dir in two one half; do
    [ "$(unread $dir)" -eq 6 ] || complain "the metrics of $dir count $(unread $dir) samples, not 6"
    grep -q '"unread_samples": 6' $dir/summary.json || complain "the summary of $dir does not count 6"
  done
  grep -q '"retries": 5,' one/summary.json || complain "sample 60 was tried again in both epochs"
  alone none "train-00000,4096,28096,$eio,999999,0" --data.on_error skip --data.skip_limit 1 --data.shuffle off --log.every 0s
  expect 0 '^step 1/.*| loss none, no sample read |'
  alone none "" --run.resume never --data.train 'set/train-*.h5' set/train-00002.h5
  expect 0 'warning: set/train-00002.h5 is named more than once'
  # The same in files: rows of zeros with the label -1.
  awk -F, 'BEGIN { OFS = "," } NR == 61 || NR == 182 || NR == 183 { for (c = 1; c <= 100; c++) $c = 0; $101 = -1 } 1' table.csv >marked.csv
  "$millrace" pack --x marked.csv --y-name 101 --out marked --shard-size 24000 --no-shuffle >out 2>err || complain "pack failed"
  alone marked "" --data.train 'marked/train-*.h5'
  expect 0
  cmp <(fields one | sed 's/,"unread.*//') <(fields marked | sed 's/,"unread.*//') || complain "a skipped sample is not as one without a label"

  # Copies near the node: the same run, by two ranks, and again from what the first left; and none of it stays in memory.
  run plain "" ""
  for where in ./near near/ memory; do
    run copied "" "" --data.cache $where --data.retries 0
    expect 0 'data.cache: .* of the samples were read from copies'
    same_run plain copied
    rm -rf copied
  done
  [ "$(find near -name '*.h5' | wc -l)" -eq 4 ] || complain "there are not four copies"
  run few "" "" --data.cache ./scarce --data.cache_budget 60KiB
  expect 0 'no more files are copied to .*data.cache_budget = 60KiB holds'
  same_run plain few
  run nowhere "" "" --data.cache ./table.csv
  expect 2 'data.cache = ./table.csv: .*name a folder'
  run nowhere "" "" --data.cache memroy
  expect 2 "data.cache: 'memroy' is neither none, memory nor a path"
  run nowhere "" "" --data.cache_budget 1MiB
  expect 2 'data.cache_budget does nothing without data.cache'

  # An evaluation leaves them out, too.
  alone valid "$bad" "${skip[@]}" --data.valid 'set/train-*.h5' --train.epochs 1
  expect 0
  grep -q ' of 237, 3 more could not be read' out err || complain "the evaluation does not say what it left out"
  alone much "$bad" --data.on_error skip
  expect 3 '3 of the 240 samples of epoch 0 could not be read, more than data.skip_limit = 0.01'
  grep -q 'train-00001.h5' much/summary.json || complain "the summary names no file"
  "$millrace" pack --x table.csv --y-name 101 --targets --out targets >out 2>err
  alone none "" --data.train 'targets/train-*.h5' --data.on_error skip
  expect 2 'data.on_error: skip marks a sample by the label -1'
fi

if [ "$4" = end ]; then # what ends a run, names rank and file, and takes the other rank along, wherever it hangs
  run hangs "" "train-00002,4096,4500,0,1,-1" --data.slow_read 300ms --data.read_timeout 1s
  expect 3 '^\[rank 1 @ .*warning: a read of set/train-00002.h5 has not returned for' \
    '^\[rank 1 @ .*error: a read of set/train-00002.h5 has not returned for'
  # Before the first batch, where the other rank waits for the list of files.
  run listing "train-00002,8,9,0,1,-1" "" --data.slow_read 300ms --data.read_timeout 1s
  expect 3 'warning: listing the data: set/train-00002.h5 has not answered for' \
    'error: listing the data: set/train-00002.h5 has not answered for .*data.read_timeout'
  # Both in their first batches: neither waits for the other.
  run fails "train-00000,4096,28096,0,1,-1" "train-00002,4096,28096,$eio,999999,0" --data.retries 1
  expect 3 '^\[rank 1 @ .*error: cannot read sample .* of set/train-00002.h5 (Input/output error), even after data.retries = 1'
  alone mpio "train-00002,4096,4500,$eio,999999,0" --data.reader mpio
  expect 3 'error: .*set/train-00002.h5.*\(Input/output error\|H5Dread failed\)'  # as MPI-IO has it
  # Collectively one rank may read for both.
  bad="train-00002,4096,4500,$eio,999999,0"
  run together "$bad" "$bad" --data.reader mpio_collective
  expect 3 'error: .*set/train-00002.h5.*\(Input/output error\|H5Dread failed\)'
  alone hangs "train-00002,4096,4500,0,1,-1" --data.read_timeout 1s --run.resume never
  expect 3 'error: a read of set/train-00002.h5 has not returned for'
  head -c 9000 set/train-00003.h5 >half && mv half set/train-00003.h5
  alone half ""
  expect 3 'set/train-00003.h5.*truncated.*it was written to [0-9]* s ago. if a program is still writing it'
fi

[ $failures -eq 0 ] || exit 1
