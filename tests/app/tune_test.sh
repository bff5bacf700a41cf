#!/bin/bash
# tune finds a faster configuration for a slow disk, stays within the memory limit, and suggests a learning
# rate. The limits are wide enough for the times of a busy machine.
# Usage: tune_test.sh MILLRACE MPIEXEC CASE
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"
pack_table set --shard-size 24000
table_config

expect_first_gain() { expect_number "gain in the first line" "$(awk 'NR == 1 { print $1 + 0 }' out)" ">=" 1.25; }

# Each read takes 1 ms: more workers, or a reader that maps the files, are far better.
case_search() {
  local line path
  slow_disk 0.001
  expect_exit 0 run_on 1 tune -c net.cfg --seconds 0.05 --keep train.micro_batch model.fusion data.prefetch --out tuned.cfg
  expect_line '^[0-9.]+x, measured '
  expect_first_gain
  expect_line '^  data\.reader +direct -> (mmap|uring) .*x in [0-9] rounds?'
  expect_line '^  not tried: comm\.bucket'
  expect_line '^  not tried: model\.fusion.*--keep'
  expect_no_file runs
  # The file contains what was printed, and is a valid configuration.
  sed -n '/^[#[]/,/^$/p' out | sed '$d' >printed
  expect_line '^# written by millrace tune$' tuned.cfg
  tail -n +2 tuned.cfg >lines
  expect_same_files printed lines
  expect_exit 0 "$millrace" train -c net.cfg -c tuned.cfg --print-config
  while read -r line; do grep -qxF "$line" out || complain "expected '$line' in the resolved configuration"; done < <(grep = tuned.cfg)
  # A file that cannot be written is refused before anything is measured.
  mkdir folder
  echo mine >mine.cfg
  for path in nowhere/tuned.cfg folder mine.cfg; do
    expect_exit 3 timeout 15 "$millrace" tune -c net.cfg --seconds 20 --out $path
    expect_line "^error: .*${path%/*}" err
    expect_equal "output for --out $path" "" "$(cat out)"
  done
  expect_equal "a file of another program" mine "$(cat mine.cfg)"
  expect_says 2 "^error: .*--keep: 'data\.worker'.*data\.reader, " "$millrace" tune -c net.cfg --keep data.worker
}

# The search starts with the largest micro-batch that fits, and never exceeds the memory. A trial that
# does not fit is listed with its reason.
case_memory() {
  local little="--run.memory 600k --data.prefetch 4 --train.global_batch 200 --model.hidden 64"
  # shellcheck disable=SC2086
  expect_exit 0 run_on 1 tune -c net.cfg --seconds 0.05 --keep data.reader data.workers data.prefetch model.fusion $little
  expect_line 'does not run: train\.micro_batch: 200 samples'
  sed -n '/^\[train\]$/,/^$/p' out >tuned.cfg
  # shellcheck disable=SC2086
  expect_exit 0 "$millrace" plan -c net.cfg -c tuned.cfg $little
  expect_no_line 'does not fit'
  slow_disk 0.001
  expect_exit 0 run_on 1 tune -c net.cfg --seconds 0.05 --keep data.reader data.workers train.micro_batch model.fusion --run.memory 300k --data.prefetch 4
  expect_line '^  data\.prefetch +4 -> auto +failed: train\.micro_batch: 8 samples'
  expect_line '^  data\.prefetch +[0-9]+ -> (2|16) .* ms, baseline '
}

# The range test of the learning rate, on two ranks.
case_rates() {
  expect_exit 0 run_on 2 tune -c net.cfg --lr-range --lr-from 1e-4 --lr-to 1000 --lr-steps 80 --train.global_batch 64 --run.threads 1 --plot curve.svg
  expect_line '^suggested: optim\.lr = [0-9.e-]+, .*Smith 2017'
  expect_line '#' out
  expect_line '1e-04' out
  expect_number "points of the picture" "$(grep -c "<circle" curve.svg)" ">=" 20
  expect_equal "last line of the picture" "</svg>" "$(tail -n 1 curve.svg)"
  expect_no_file runs
  expect_says 2 '^error: .*--lr-steps .*--lr-range' "$millrace" tune -c net.cfg --lr-steps 30
}

# A signal in the first trials ends the search with its result so far. The reads take far longer than
# two ranks wait for each other on busy cores.
case_stop() {
  slow_disk 0.02
  start run_on 2 tune -c net.cfg --seconds 0.3 --run.threads 1
  wait_for_line '^trying ' background
  kill -USR2 "$pid"
  expect_end 0
  expect_line '^the search ended early: ' background
  expect_number "trials after the signal" "$(grep -c '^trying ' background)" "<=" 2
}

# With a slow all-reduce a larger global batch is faster. It is searched only on request (--global-batch
# free). The output states its effect on the learning rate, but does not apply it.
case_free() {
  expect_exit 0 run_on 2 tune -c net.cfg --seconds 0.1 --data.reader mmap --run.threads 1 --test.all_reduce_delay 0.02 --model.hidden 400 400 \
    --keep data.reader data.workers data.prefetch comm.bucket_size model.fusion --global-batch free --out tuned.cfg
  expect_line '^  train\.global_batch +8 -> 16 '
  expect_first_gain
  expect_line '^global_batch = ' tuned.cfg
  expect_line '^# train\.global_batch 8 -> .*linear scaling' tuned.cfg
  expect_no_line '^lr' tuned.cfg
}

run_case "$3"
