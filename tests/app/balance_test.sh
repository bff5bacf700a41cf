#!/bin/bash
# Load balancing over ranks of different speed (train.balance = auto). quick: the losses stay the same, a
# run with a recorded split of the micro-batches is equal bit for bit, and a resumed run continues with
# the last split. table: prints a table for docs/benchmarks that compares the speed with the sum of the
# speeds of the single ranks. It fails if a row is below WITHIN (0.9) of that sum TRIES (1) times. Retries
# help because the two are not measured at the same time.
# Usage: balance_test.sh MILLRACE MPIEXEC quick|table
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"

conv_model >net.cfg
cat >>net.cfg <<'CFG'
[run]
threads = 1
[data]
train = synthetic:images:rows=2000,shape=6x6x3,classes=4
workers = 0
[train]
global_batch = 64
balance = auto
evaluate = off
[optim]
lr = 0.05
schedule = constant
[checkpoint]
every = none
CFG
# The computation is simulated: $TIMES has the time for a sample on each rank, separated by blanks.
cat >ranked <<'SH'
#!/bin/bash
times=($TIMES)
exec "$@" --test.compute_delay ${times[${OMPI_COMM_WORLD_RANK:-0}]}
SH
chmod +x ranked
under=(./ranked)

# balanced CODE RUN_FOLDER TIMES OPTION...: trains on one rank for each of TIMES, and checks the exit code.
balanced() {
  local times
  read -ra times <<<"$3"
  TIMES=$3 expect_exit "$1" train ${#times[@]} "$2" "${@:4}"
}
# splits RUN_FOLDER: prints the numbers of micro-batches of the ranks, one line for each change.
splits() { sed -n 's/.*"micro_batches":\[\(.*\)\]}$/\1/p' "$1/shares.jsonl"; }
# rate RUN_FOLDER FIRST LAST: prints samples/s, from the median duration of these steps.
rate() { metrics "$1" step_ms | sed -n "$2,$3p" | sort -g | awk '{ t[NR] = $1 } END { print 64e3 / t[int((NR + 1) / 2)] }'; }

case_quick() {
  local last
  balanced 0 even "1ms 3ms" --train.balance even --train.micro_batch 4 --train.steps 25
  balanced 0 auto "1ms 3000us" --train.steps 25  # the ranks' configurations differ in length
  expect_line '^step [0-9]+: .* ms on rank 0, .* ms on rank 1; .* 8 8 -> '
  expect_no_file even/shares.jsonl
  expect_equal "first split" 8,8 "$(splits auto | head -n 1)"
  last=$(splits auto | tail -n 1)
  [[ $last =~ ^(10,6|11,5|12,4|13,3)$ ]] || complain "rank 1 takes three times as long: expected about 12,4 micro-batches, got $last"
  expect_number "samples/s" "$(rate auto 17 25)" ">" "$(awk -v e="$(rate even 17 25)" 'BEGIN { print 1.1 * e }')"
  # The gradients and the statistics of batch norm are the same, except for the order of summation.
  paste <(metrics even loss) <(metrics auto loss) | awk '{ d = ($1 - $2) / $1 } d > 1e-5 || d < -1e-5 { exit 1 } END { exit NR != 25 }' ||
    complain "expected the losses of the even split within 1e-5: $(paste <(metrics even loss) <(metrics auto loss) | tail -n 2)"
  balanced 0 again "0ms 0ms" --train.balance auto/shares.jsonl --train.steps 25
  expect_same_metrics auto again
  expect_same_files auto/shares.jsonl again/shares.jsonl
  balanced 0 auto "1ms 3ms" --train.steps 30
  expect_equal "split of the resumed run" "$last" "$(splits auto | tail -n 1)"
  expect_line '"step":26,' <(tail -n 1 auto/shares.jsonl)
  balanced 0 auto "0ms 0ms 0ms" --train.steps 31
  expect_line '"micro_batches":\[[0-9]+,[0-9]+,[0-9]+\]' <(tail -n 1 auto/shares.jsonl)
  balanced 2 other "0ms" --train.balance again/shares.jsonl
  expect_line '^error: train\.balance: again/shares\.jsonl:1 .*16 .*2 ranks.* on 1'
  balanced 2 other "0ms" --train.balance nowhere
  expect_line '^error: train\.balance: .*nowhere'
  balanced 0 again "0ms 0ms" --train.balance even --train.micro_batch 4 --train.steps 26
  expect_no_file again/shares.jsonl
}

# row NAME TIMES: prints a row of the table, repeatedly while it is too slow.
row() {
  local try
  for try in $(seq "${TRIES:-1}"); do
    if measure "$@"; then return; fi
  done
  complain "$1: expected at least ${WITHIN:-0.9} of the sum, got less ${TRIES:-1} time(s)"
}
measure() {
  local times sum=0 i pids=()
  IFS=' ' read -ra times <<<"$2"
  # Each rank as a separate run of one rank. They run at the same time, because ranks share the CPU.
  for i in "${!times[@]}"; do
    rm -rf "one$i"
    TIMES=${times[i]} train 1 "one$i" --train.steps 14 --train.micro_batch 2 >"one$i.log" 2>&1 &
    pids+=($!)
  done
  wait "${pids[@]}"
  for i in "${!times[@]}"; do sum=$(awk -v s="$sum" -v r="$(rate "one$i" 3 7)" 'BEGIN { print s + r }'); done
  rm -rf even auto
  balanced 0 even "$2" --train.steps 12 --train.balance even --train.micro_batch 2
  balanced 0 auto "$2" --train.steps 40 --train.micro_batch 2
  awk -v n="$1" -v e="$(rate even 4 12)" -v a="$(rate auto 26 40)" -v s="$sum" -v h="$(splits auto | tail -n 1)" -v least="${WITHIN:-0.9}" 'BEGIN {
    printf "| %s | %.0f | %.0f | %.0f | **%.0f %%** | %s |\n", n, s, e, a, 100 * a / s, h; exit a < least * s }'
}
case_table() {
  local parent group=
  echo "| ranks | each a separate run, summed, samples/s | even | auto | of the sum | micro-batches |"
  echo "|---|---|---|---|---|---|"
  row "2, one half as fast" "6ms 12ms"
  row "3, one a third as fast" "6ms 6ms 18ms"
  row "4, of three speeds" "6ms 6ms 12ms 24ms"
  for parent in /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup; do  # versions 1 and 2
    if group=$(mktemp -d $parent/millrace-XXXXXX 2>/dev/null); then break; fi
  done
  quota() { { { echo 20000 >"$group/cpu.cfs_period_us" && echo "$1" >"$group/cpu.cfs_quota_us"; } || echo "$1 20000" >"$group/cpu.max"; } 2>/dev/null; }
  [ -z "$group" ] || at_exit rmdir "$group"
  if [ -z "$group" ] || ! quota 10000; then
    echo "skipped: real computation under a quota, because no control group can be created in /sys/fs/cgroup"
    return
  fi
  cat >ranked <<SH
#!/bin/bash
times=(\$TIMES)
[ "\${times[\${OMPI_COMM_WORLD_RANK:-0}]}" = half ] && echo \$\$ >"$group/cgroup.procs"
exec "\$@" --model.name mlp --model.hidden 3072 3072
SH
  row "2, real computation, one with half of a core's time" "whole half"
  quota 4000  # on a busy machine the other rank may also get only half of a core
  balanced 0 named "whole half" --train.steps 8 --train.balance even --train.micro_batch 2
  expect_line 'straggler: rank 1 .*quota'
}

run_case "$3"
