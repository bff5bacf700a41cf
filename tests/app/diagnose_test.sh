#!/bin/bash
# diagnose and the verdict at the end of a run name bottlenecks that the test creates, and the advised
# change makes the run faster. The limits are wide enough for the times of a busy machine.
# Usage: diagnose_test.sh MILLRACE MPIEXEC CASE
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"
pack_table set --shard-size 24000
table_config

# expect_gain KEYS LEAST: checks the gain of the best trial that changed one of the keys (separated by |).
expect_gain() {
  expect_number "best gain of a change of $1" "$(awk -v keys="$1" '$1 ~ "^(" keys ")$" && $3 == "->" {
    split($0, part, ": "); gain = part[2] + 0; if (gain > best) best = gain } END { print best + 0 }' out)" ">=" "$2"
}
expect_first_line() {
  head -n 1 out >first_line
  expect_line "$1" first_line
}
# expect_verdict PATTERN: checks the verdict in the output of a run.
expect_verdict() {
  grep -m 1 -E '^[a-z-]+(-bound|ed): |^nothing worth changing: ' out >verdict || true
  expect_line "$1" verdict
}

# Each read takes 1 ms and files cannot be mapped: more workers help, about as much as diagnose predicts.
case_input() {
  local workers promised gain
  slow_disk 0.001
  under+=("MILLRACE_TEST_FAULTS=train-,0,4096,19,1000000000,0;train-,4096,100000000,0,1000000000,0.001")
  expect_exit 0 run_on 1 diagnose -c net.cfg --seconds 0.05
  expect_line '^  data\.reader -> mmap: not tried.*train-.*No such device'
  expect_first_line '^input-bound: .*data\.[a-z]* .*gives '
  expect_gain 'data.workers|data.reader' 1.25
  expect_line '^  read  .* samples/s .*  baseline '
  expect_line 'ms per step: .*without the optimizer'
  expect_line '^peaks .*matrix product .* GFLOP/s'
  expect_no_file runs
  promised=$(awk '$1 == "data.workers" && $4 == 4 { split($0, part, ": "); print part[2] + 0 }' out)
  slow_disk 0.001
  for workers in 1 4; do
    expect_exit 0 train 1 w$workers --data.workers $workers --train.steps 90 --checkpoint.every none
  done
  gain=$(awk -v one="$(summary w1 samples_per_second)" -v four="$(summary w4 samples_per_second)" 'BEGIN { print four / one }')
  expect_number "gain of 4 workers, promised ${promised:-nothing}," "$gain" ">" "$(awk -v p="${promised:-1e9}" 'BEGIN { print p / 1.7 }')"
  expect_number "gain of 4 workers, promised ${promised:-nothing}," "$gain" "<" "$(awk -v p="${promised:-0}" 'BEGIN { print p * 1.7 }')"
  expect_says 2 '^error: .*--seconds' "$millrace" diagnose -c net.cfg --seconds 0
}

# On two ranks: a slow all-reduce, and a rank that takes three times as long for a sample.
case_sums() {
  local balance ms
  expect_exit 0 run_on 2 diagnose -c net.cfg --seconds 0.05 --data.reader mmap --model.hidden 400 400 --test.all_reduce_delay 0.02 --run.threads 1 --data.prefetch 2
  expect_first_line '^communication-bound: .*gives '
  expect_gain 'comm.grad_dtype' 1.25
  # 0.8 MB at 0.02 s a MB take 16 ms.
  ms=$(awk '/^an all-reduce of the whole gradient / { for (i = 1; i < NF; i++) if ($i == "takes") t = $(i + 1) } END { print t }' out)
  expect_number "ms of an all-reduce of the whole gradient" "$ms" ">" 14
  expect_number "ms of an all-reduce of the whole gradient" "$ms" "<" 100
  printf '#!/bin/bash\nexec "$@" --test.compute_delay $((2 + 4 * OMPI_COMM_WORLD_RANK))ms\n' >slow_rank
  chmod +x slow_rank
  under=(./slow_rank)
  for balance in even auto; do
    expect_exit 0 run_on 2 diagnose -c net.cfg --seconds 0.3 --data.reader mmap --run.threads 1 --train.global_batch 32 --train.balance $balance
    [ $balance = auto ] || expect_first_line '^imbalanced: .*train\.balance even -> auto gives '
  done
  expect_no_line '^imbalanced: '
}

# The verdict at the end of a run, without any trial; and diagnose with no time for trials.
case_train() {
  set -- --checkpoint.every none
  slow_disk 0.002
  expect_exit 0 train 1 slow --train.steps 100 "$@"
  expect_verdict '^input-bound: .*data\.workers 1 -> [2-9].*: at most [0-9.]*x'
  expect_line '"advice": "data\.workers 1 -> ' slow/summary.json
  slow_disk 0
  expect_exit 0 train 2 sums --train.steps 25 "$@" --data.reader mmap --test.all_reduce_delay 0.1 --run.threads 1 --model.hidden 400 400
  expect_verdict '^communication-bound: .*comm\.grad_dtype none -> bf16.*: at most [0-9.]*x'
  expect_line '^    bucket 0: '
  slow_disk 0.001
  expect_exit 0 run_on 1 diagnose -c net.cfg --seconds 0.05 --budget 1ms
  expect_line '^  data\.workers -> 2: not tried.*--budget 0\.001s'
  expect_line '^measured, ms per step: '
}

# With account.probe the changes are tried after the run, until a signal asks it to stop. The reads take
# far longer than two ranks wait for each other on busy cores.
case_probe() {
  local verdict
  slow_disk 0.02
  set -- --train.steps 25 --checkpoint.every none --account.probe on --run.threads 1
  expect_exit 0 train 2 probed "$@"
  expect_line '^input-bound: .*gives [0-9.]*x' out
  expect_line '^trying data\.workers = 2' err
  expect_line '^  linear +[0-9.]+ +[0-9.]+ ' out
  [ -s probed/layers.json ] || complain "expected operations in probed/layers.json"
  verdict=$(sed -nE 's/^ *"verdict": "(.*)",?$/\1/p' probed/summary.json)
  [[ $verdict == input-bound:*" gives "* ]] || complain "expected a measured gain in the verdict of summary.json, got '$verdict'"
  grep -qxF "$verdict" out || complain "expected the verdict of summary.json in the output: $verdict"
  expect_exit 0 "$millrace" report probed
  expect_texts probed/report.html "compared with their roofline"
  start train 1 stopped "$@"
  wait_for_line '^trying ' background
  kill -TERM "$pid"
  expect_end 0
  expect_lines 1 '^trying ' background
}

run_case "$3"
