#!/bin/bash
# Reads that fail. Depending on the configuration a run repeats them, with an unchanged result, or skips the
# samples. Any other failure ends all ranks with a message that names the rank and the file.
# Usage: faults_test.sh MILLRACE MPIEXEC go_on|end
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"

# Four shards of 60 rows of 400 bytes.
pack_table set --shard-size 24000 --no-shuffle
expect_equal "number of shards" 4 "$(find set -type f | wc -l)"
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

# A fault is FILE,FIRST_BYTE,LAST_BYTE,ERROR,TIMES,SECONDS; see tests/support/faulty_files.cpp.
eio=5
estale=116
cat >faulty_rank <<'SH'
#!/bin/bash
faults=FAULTS_OF_${OMPI_COMM_WORLD_RANK:-0}
LD_PRELOAD=$FAULTY_FILES MILLRACE_TEST_FAULTS=${!faults} exec "$@"
SH
chmod +x faulty_rank
under=(timeout 30 ./faulty_rank)
export FAULTY_FILES=$faulty_files FAULTS_OF_0 FAULTS_OF_1

# expect_alone CODE RUN_FOLDER FAULTS OPTION...; expect_two CODE RUN_FOLDER FAULTS_OF_0 FAULTS_OF_1 OPTION...
expect_alone() {
  FAULTS_OF_0=$3
  expect_exit "$1" train 1 "$2" "${@:4}"
}
expect_two() {
  FAULTS_OF_0=$3
  FAULTS_OF_1=$4
  expect_exit "$1" train 2 "$2" "${@:5}"
}
expect_unread() {
  expect_equal "unread samples in the metrics of $1" "$2" "$(metrics "$1" unread_samples | awk '{ sum += $1 } END { print sum + 0 }')"
  expect_equal "unread samples in the summary of $1" "$2" "$(summary "$1" unread_samples)"
}

case_go_on() {
  # Temporary errors do not change the result, whether samples are read or files are opened.
  expect_alone 0 whole ""
  expect_alone 0 passing "train-00001,4096,4500,$eio,2,0;train-00002,4096,4500,$estale,1,0"
  expect_lines 1 'warning: .*train-00001\.h5 \(Input/output'
  expect_lines 1 'warning: .*train-00002\.h5 \(Stale'
  expect_lines 1 'faults: rank 0, set/train-00001\.h5: [1-9]'
  expect_line '"retries": [1-9]' passing/summary.json
  expect_same_metrics whole passing
  expect_alone 0 opening "train-00001,0,1,$eio,2,0"
  expect_same_metrics whole opening
  expect_alone 0 header "train-00001,8,9,$eio,1,0"  # read by HDF5
  expect_lines 1 'warning: .*train-00001\.h5.*Input/output error'
  expect_same_metrics whole header
  mkfifo pipe.h5
  expect_alone 3 none "" --data.train pipe.h5
  expect_lines 1 'pipe\.h5 .*regular file'

  # Samples that cannot be read (60, 181 and 182) are skipped, on one rank and on two.
  local bad="train-00001,4096,4097,$eio,999999,0;train-00003,4496,4897,$eio,999999,0" run shard
  set -- --data.on_error skip --data.skip_limit 0.02
  expect_two 0 two "$bad" "$bad" "$@"
  expect_lines 1 'epoch 1: 3 of 240 samples'
  expect_lines 1 'epoch 2: 3 of 240'
  for shard in 1 3; do
    expect_number "warnings about shard $shard, one a rank," "$(grep -c "warning: .*train-0000$shard.h5.*skipped" err)" "<=" 2
  done
  expect_alone 0 one "$bad" "$@"
  expect_alone 0 half "$bad" "$@" --train.steps 13
  expect_alone 0 half "$bad" "$@"
  expect_lines 1 'resumed at step 13'
  expect_same_metrics half one
  for run in two one half; do expect_unread $run 6; done
  expect_line '"retries": 5,' one/summary.json  # sample 60 is not tried again in the second epoch
  expect_alone 0 none "train-00000,4096,28096,$eio,999999,0" --data.on_error skip --data.skip_limit 1 --data.shuffle off --log.every 0s
  expect_lines 1 '^step 1/.*loss none'
  expect_alone 0 none "" --run.resume never --data.train 'set/train-*.h5' set/train-00002.h5
  expect_lines 1 'warning: set/train-00002\.h5 .*more than once'
  # A skipped sample counts like a row of zeros without a label (-1).
  awk -F, 'BEGIN { OFS = "," } NR == 61 || NR == 182 || NR == 183 { for (c = 1; c <= 100; c++) $c = 0; $101 = -1 } 1' table.csv >marked.csv
  expect_exit 0 "$millrace" pack --x marked.csv --y-name 101 --out marked --shard-size 24000 --no-shuffle
  expect_alone 0 unlabelled "" --data.train 'marked/train-*.h5'
  sed -i 's/"unread_samples":[0-9]*/"unread_samples":0/' one/metrics.jsonl unlabelled/metrics.jsonl
  expect_same_metrics one unlabelled
  # An evaluation skips them as well. More of them than data.skip_limit end the run.
  expect_alone 0 valid "$bad" "$@" --data.valid 'set/train-*.h5' --train.epochs 1
  expect_line ' of 237, .*, 3 samples could not be read'
  expect_alone 3 much "$bad" --data.on_error skip
  expect_lines 1 '3 of the 240 samples .*data\.skip_limit = 0\.01'
  expect_line 'train-00001\.h5' much/summary.json
  expect_exit 0 "$millrace" pack --x table.csv --y-name 101 --targets --out targets
  expect_alone 2 none "" --data.train 'targets/train-*.h5' --data.on_error skip
  expect_lines 1 'data\.on_error: skip'

  # Local copies of the files do not change the result. Later starts use them; none stay in memory.
  local where
  expect_two 0 plain "" ""
  for where in ./near near/ memory; do
    expect_two 0 copied "" "" --data.cache $where --data.retries 0
    expect_lines 1 'data\.cache: .*copies'
    expect_same_metrics plain copied
    rm -rf copied
  done
  expect_equal "number of copies" 4 "$(find near -name '*.h5' | wc -l)"
  expect_two 0 few "" "" --data.cache ./scarce --data.cache_budget 60KiB
  expect_lines 1 'warning: .*data\.cache_budget = 60KiB'
  expect_same_metrics plain few
  expect_alone 2 nowhere "" --data.cache ./table.csv
  expect_lines 1 'data\.cache = \./table\.csv: .*folder'
  expect_alone 2 nowhere "" --data.cache memroy
  expect_lines 1 "data\.cache: 'memroy'"
  expect_alone 2 nowhere "" --data.cache_budget 1MiB
  expect_lines 1 'data\.cache_budget .*data\.cache\>'
}

case_end() {
  # A read that does not return.
  expect_two 3 hangs "" "train-00002,4096,4500,0,1,-1" --data.slow_read 300ms --data.read_timeout 1s
  expect_lines 1 '^\[rank 1 @ .*warning: .*set/train-00002\.h5 .*not returned'
  expect_lines 1 '^\[rank 1 @ .*error: .*set/train-00002\.h5 .*not returned'
  # Before the first batch, where the other rank waits for the list of files.
  expect_two 3 listing "train-00002,8,9,0,1,-1" "" --data.slow_read 300ms --data.read_timeout 1s
  expect_lines 1 'warning: .*set/train-00002\.h5 .*not answered'
  expect_lines 1 'error: .*set/train-00002\.h5 .*not answered.*data\.read_timeout'
  # Both ranks in their first batches: neither waits for the other.
  expect_two 3 fails "train-00000,4096,28096,0,1,-1" "train-00002,4096,28096,$eio,999999,0" --data.retries 1
  expect_lines 1 '^\[rank 1 @ .*error: .*set/train-00002\.h5 \(Input/output error\).*data\.retries = 1'
  # MPI-IO, alone and collectively, where one rank may read for both.
  local bad="train-00002,4096,4500,$eio,999999,0"
  expect_alone 3 mpio "$bad" --data.reader mpio
  expect_lines 1 'error: .*set/train-00002\.h5.*(Input/output error|H5Dread failed)'
  expect_two 3 together "$bad" "$bad" --data.reader mpio_collective
  expect_lines 1 'error: .*set/train-00002\.h5.*(Input/output error|H5Dread failed)'
  expect_alone 3 hangs "train-00002,4096,4500,0,1,-1" --data.read_timeout 1s --run.resume never
  expect_lines 1 'error: .*set/train-00002\.h5 .*not returned'
  # A truncated file. The message says when it was written, since another program may still be writing it.
  truncate -s 9000 set/train-00003.h5
  expect_alone 3 half ""
  expect_lines 1 'set/train-00003\.h5.*truncated.*written .*[0-9] s ago'
}

run_case "$3"
