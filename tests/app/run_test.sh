#!/bin/bash
# The result of a run does not depend on the number of ranks or on how gradients are all-reduced, and the
# files and lines that it writes contain what the documentation promises.
# Usage: run_test.sh MILLRACE MPIEXEC CASE
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"
small_config

# Output to a file contains no carriage returns; on a terminal one line is updated.
case_logs() {
  expect_exit 0 train 2 run --log.every 1000
  expect_no_line $'\r'
  expect_lines 4 '^step .* samples/s, speed of light [0-9.]+ % \|'  # the first three and the last
  expect_line 'finished .* while training, speed of light [0-9.]+ %$'
  expect_exit 0 train 1 dark --log.speed_of_light off
  expect_no_line 'speed of light'
  MILLRACE_TERMINAL=1 expect_exit 0 train 1 other
  expect_line $'\r'
}

# If /dev/shm is too small, the result is the same, and one line reports it.
case_memory() {
  expect_exit 0 train 2 shared
  MILLRACE_TEST_SHM_BYTES=10000 expect_exit 0 train 2 private
  expect_lines 1 '/dev/shm'
  expect_same_run shared private
  # The plan covers what the ranks use, so that a job is not killed for memory. Ranks that cannot share gradients have
  # copies of their own.
  if [ "$(df --output=avail -B1 /dev/shm | tail -n 1)" -lt 700000000 ]; then
    echo "the plan is not compared: /dev/shm has less than 700 MB"
    return
  fi
  local zero
  for zero in 0 1; do
    expect_exit 0 train 2 large$zero --model.name mlp --model.hidden 4000 4000 --run.precision fp32 --train.steps 3 --optim.zero $zero
    python3 - large$zero/summary.json <<'PY' || complain "the memory plan with optim.zero = $zero is too small"
import json, sys
ranks = json.load(open(sys.argv[1]))["account"]["ranks"]
for rank in ranks:
    used = rank["process"]["resident_bytes"] - rank["process"]["shared_bytes"]
    print(rank["memory_bytes"], used)
    assert rank["process"]["shared_bytes"] > 30e6, "the ranks share gradients"
    assert used < max(1.05 * rank["memory_bytes"], rank["memory_bytes"] + (32 << 20))
PY
  done
}

# The result does not depend on whether gradients are all-reduced during the backward pass or after it, by a
# thread or inline, in one bucket or in many.
case_overlap() {
  expect_exit 0 train 2 plain --comm.overlap off --comm.progress inline
  expect_exit 0 train 2 overlapped --comm.overlap on --comm.progress thread --comm.bucket_size 1KiB
  expect_same_run plain overlapped
}

# If the loss is not finite, the run exits with 4, prints one line of advice and keeps the last good
# checkpoint. With a loss scale the step is skipped instead.
case_diverged() {
  expect_exit 4 train 2 run --run.precision fp32 --test.force_overflow_at 12 --checkpoint.every 5 --log.every 0
  expect_lines 1 'error:'
  expect_line 'optim\.lr'
  expect_file run/checkpoints/step-00000010.h5
  expect_equal "status of the diverged run" '"diverged"' "$(summary run status)"
  expect_line '^step 12/.*not finite'
  expect_no_line '(-bound|judge|worth (a trial|changing)).*:|samples/s while training'  # no advice on speed
  expect_no_line overflow
  expect_exit 0 train 2 scaled --train.steps 21 --log.every 0
  expect_line '^step 20/.*overflow'
}

# metrics.jsonl and summary.json contain all that is promised, and their numbers are consistent.
case_files() {
  local key phase
  # The delay makes a step take 1 ms, so that the cost of measuring can be judged.
  expect_exit 0 train 2 run --run.precision fp32 --test.force_overflow_at -1 --test.all_reduce_delay 0.2
  for key in step epoch samples loss lr grad_norm loss_scale samples_per_second step_ms data_wait_ms copy_ms forward_ms backward_ms \
    communication_ms optimizer_ms other_ms; do
    expect_lines 42 "[{,]\"$key\":-?[0-9][0-9.e+-]*[,}]" run/metrics.jsonl
  done
  awk -F'[:,{}"]+' '{ for (i = 2; i < NF; i += 2) v[$i] = $(i + 1)
    if (v["step"] != NR || v["samples"] != 500 * int((NR - 1) / 14) + (NR % 14 ? 36 * (NR % 14) : 500)) exit 1
    sum = v["data_wait_ms"] + v["copy_ms"] + v["forward_ms"] + v["backward_ms"] + v["communication_ms"] + v["optimizer_ms"] + v["other_ms"]
    if (sum < 0.99 * v["step_ms"] || sum > 1.01 * v["step_ms"] || v["samples_per_second"] <= 0) exit 1 }' run/metrics.jsonl ||
    complain "expected samples without a gap, and phases that add up to the step's time: $(tail -n 1 run/metrics.jsonl)"
  expect_equal "status, steps and samples" '"finished" 42 1500' "$(summary run status) $(summary run steps) $(summary run samples)"
  expect_equal "validation loss and top-1 of the log and of summary.json" \
    "$(sed -n 's/.*): validation loss \([0-9.]*\), top-1 \([0-9.]*\) .*/\1 \2/p' out | tail -n 1)" \
    "$(LC_ALL=C awk -v l="$(summary run valid_loss)" -v a="$(summary run valid_accuracy)" 'BEGIN { printf "%.4f %.2f", l, 100 * a }')"
  expect_number samples_per_second "$(summary run samples_per_second)" ">" "$(awk -v t="$(summary run seconds)" 'BEGIN { print 1500 / t }')"
  expect_number samples_per_second "$(summary run samples_per_second)" "<" 1e9
  # On each rank the ten phases add up to the wall time, which is that of the run. That is taken on rank 0; another one
  # may start earlier, by 9 ms when the machine was busy.
  awk -v t="$(summary run seconds)" -F'[:,] *' '/"seconds": \{/ { inside = 1; sum = phases = 0; next } inside && /}/ { inside = 0 } inside { sum += $2; ++phases }
    /"wall_seconds": [0-9]/ { ++ranks; if (phases != 10 || sum < 0.99 * $2 || sum > 1.01 * $2 || $2 < 0.5 * t || $2 > 1.01 * t + 0.05) bad = 1 }
    END { exit bad || ranks != 2 }' run/summary.json ||
    complain "expected ten phases on each of two ranks that add up to its wall_seconds: $(cat run/summary.json)"
  awk -F'[:,] *' '/"mark_seconds": / { cost = $2 } /"marks_per_step": / { marks = $2 }
    /"mean": / { ++ranks; if (marks < 20 || cost <= 0 || marks * cost > 0.005 * $2) bad = 1 } END { exit bad || ranks != 2 }' run/summary.json ||
    complain "measuring was expected to cost less than 0.5 % of a step: $(grep -E '"mark|"mean"' run/summary.json)"
  for key in findings hints copy_seconds input_pass queue_depths first_batch_seconds capacity sums exposed loss_scales p99 resident_bytes shared_bytes preempted checkpoints evaluations step_flops; do
    expect_line "\"$key\": " run/summary.json
  done
  for phase in startup data_wait copy forward backward communication optimizer evaluation checkpoint other; do
    grep -A 4 "^      \"$phase\": {" run/summary.json >phase || true
    expect_lines 3 '"(min|median|max)": ' phase
  done
}

# On any number of ranks eval prints the numbers that the run printed at that step.
case_eval() {
  local last older ranks
  expect_exit 0 train 2 run
  cp out log
  last=$(sed -n 's/.*\((step 42)\): \(validation .*\)/\2/p' log | tail -n 1)
  [[ $last == *" of 100, macro F1 "* ]] || complain "expected an evaluation of all 100 samples, got '$last'"
  for ranks in 1 2 3; do
    expect_exit 0 mpi $ranks "$millrace" eval run
    expect_equal "eval on $ranks ranks" "step 42: $last" "$(head -n 1 out)"
  done
  # A checkpoint is enough: without the run, and without the training data.
  older=$(checkpoint_of run 42)
  mkdir elsewhere
  cp "$older" elsewhere/model.h5
  for ranks in 1 2; do
    expect_exit 0 mpi $ranks "$millrace" eval elsewhere/model.h5 --data.train gone-*.h5
    expect_equal "eval of a file on $ranks ranks" "step 42: $last" "$(head -n 1 out)"
  done
  expect_exit 2 run_on 1 eval elsewhere/model.h5 --data.normalize off
  expect_line "holds another network .* mean=.* then, .* now" err
  expect_exit 0 run_on 1 eval run --checkpoint best
  expect_equal "the best checkpoint" "$(cat run/checkpoints/best)" "$(sed -n 's/^step \([0-9]*\):.*/step-000000\1.h5/p' out)"
  expect_exit 3 run_on 1 eval elsewhere --checkpoint best
  older=$(checkpoint_of run 14)
  expect_exit 0 run_on 1 eval -c net.cfg --checkpoint "$older"
  expect_line "^step 14: $(sed -n 's/.*(step 14): //p' log)$"
}

# Samples, crops and dropout do not depend on the number of ranks. With constant weights the losses are
# therefore equal, except for the order in which doubles are summed.
case_samples() {
  local ranks
  set -- --run.precision fp32 --optim.lr 0 --test.force_overflow_at -1 --train.evaluate off
  for ranks in 1 2 3; do
    expect_exit 0 train $ranks run$ranks "$@"
    losses run$ranks
    expect_same_files run1.losses run$ranks.losses
  done
  expect_equal "different losses in 42 steps" 42 "$(cut -d ' ' -f 2 run1.losses | sort -u | wc -l)"
  expect_exit 0 train 2 parts "$@" --train.steps 17
  expect_exit 0 train 3 parts "$@"
  losses parts
  expect_same_files run1.losses parts.losses
}
losses() { paste <(metrics "$1" samples) <(metrics "$1" loss) | LC_ALL=C awk '{ printf "%d %.12f\n", $1, $2 }' >"$1.losses"; }

# With run.reproducible = strict, runs on one host and on several are equal bit for bit.
case_strict() {
  local ranks
  set -- --run.reproducible strict --train.micro_batch 3
  expect_exit 0 train 1 run1 "$@"
  for ranks in 2 3; do
    expect_exit 0 env MILLRACE_TEST_RANKS_PER_HOST=1 "$mpiexec" --bind-to none -n $ranks "$millrace" train -c net.cfg --run.dir run$ranks "$@"
    expect_same_run run1 run$ranks
  done
}

# scaling predicts the duration of a step on other numbers of ranks from a finished run. If information
# about the links is missing, the error message asks for it.
case_scaling() {
  local words
  expect_exit 0 train 1 run --train.steps 12 --run.threads 1
  expect_says 2 "^error: .*--latency.*'100'" "$millrace" scaling run --ranks 1,2,8 --link 1Mb/s --latency 100
  expect_exit 0 "$millrace" scaling run --ranks 1,2,8 --link 1Mb/s --latency 100us --json
  # The step of the run; then on 1, 2 and 8 ranks with the run's global batch, and with its samples per rank.
  sed -n 's/^ *"step": \([0-9.e+-]*\),*$/\1/p' out >steps
  awk 'NR == 1 { run = $1 } (NR == 2 || NR == 5) && ($1 < 0.999 * run || $1 > 1.001 * run) { bad = 1 }
    NR == 6 { two = $1 } END { exit bad || NR != 7 || two <= run || $1 <= two }' steps ||
    complain "expected 7 steps: one rank as measured, and more ranks slower; got $(xargs <steps)"
  expect_exit 0 "$millrace" scaling run --ranks 2,64 --link 400Gb/s
  expect_line '^(scales to|does not scale at) '
  expect_line '^weak: 36 samples'
  expect_line 'one sample a rank'
  expect_no_line '^warning: .*earlier launch'
  cp -r run older
  sed -i 's/"started": "[^"]*"/"started": "2200-01-01T00:00:00Z"/' older/run.json
  expect_says 0 '^warning: older/summary\.json.*run\.json' "$millrace" scaling older --ranks 2 --link 400Gb/s
  for words in "--ranks 2" "--ranks 2 --measure" "--ranks 2 --link 400"; do
    # shellcheck disable=SC2086
    expect_says 2 '^error: command line: ' "$millrace" scaling run $words
  done
  expect_exit 3 "$millrace" scaling nowhere --ranks 2 --link 1Gb/s
  expect_exit 0 run_on 2 scaling run --ranks 2 --ranks-per-node 2 --measure
  expect_line '^links .*2 ranks.*1 node'
  # optim.zero = auto shards the optimizer of this run, and the forecast assumes the same.
  expect_exit 0 train 2 sharded --train.steps 12 --run.threads 1 --model.name mlp --model.hidden '1450 1450' --optim.name adamw
  expect_line '^training .*, optimizer sharded$'
  expect_exit 0 "$millrace" scaling sharded --ranks 2 --ranks-per-node 2 --local-link 1GB/s --local-latency 0s
  expect_line 'ZeRO: reduce-scatter'
  expect_exit 0 run_on 2 scaling run --measure  # without --ranks: only numbers of ranks whose links are known
  expect_line '^warning: .*2 ranks'
  expect_lines 1 '^ +2 +72 '
  expect_no_line '^ +4 '
}

run_case "$3"
