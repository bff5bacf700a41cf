#!/bin/bash
# A run that was stopped, killed or cut off by a full disk continues from its newest intact checkpoint,
# and its result equals that of an uninterrupted run bit for bit.
# Usage: resume_test.sh MILLRACE MPIEXEC CASE
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"
small_config

# The gradients have 4.75 KiB, so a step takes at least 24 ms and there is time to interrupt it.
slowly="--test.all_reduce_delay 5"

# A run is stopped in the middle of an epoch, first by the file STOP and then by a signal.
case_resume() {
  expect_exit 0 train 2 whole
  expect_line '"skipped":true' whole/metrics.jsonl
  start train 2 parts $slowly
  wait_for_steps parts 5
  touch parts/STOP
  expect_end 75
  start train 2 parts $slowly
  wait_for_steps parts 22
  kill -USR2 "$pid"
  expect_end 75
  expect_line '^resumed at step' background
  expect_exit 0 train 2 parts
  expect_line '^resumed at step'
  expect_same_run whole parts
}

# SIGTERM to a single rank: all ranks finish the step, and a checkpoint is written.
case_terminated() {
  expect_exit 0 train 2 whole
  start train 2 parts $slowly
  wait_for_steps parts 5
  kill -TERM "$(pgrep -n -P "$pid")"
  expect_end 75
  expect_line 'stopped early \(signal Terminated\)' background
  expect_file "$(checkpoint_of parts "$(steps_of parts)")"
  expect_exit 0 train 2 parts
  expect_same_run whole parts
}

# A stop request during the start, while the program executes itself again, is kept until the training can obey it. The
# process has the name that killall looks for.
case_early() {
  start train 1 run
  until grep -qz MILLRACE_REEXECUTED "/proc/$pid/environ"; do :; done
  kill -TERM "$pid"
  expect_equal "name of the process" millrace "$(cat "/proc/$pid/comm")"
  expect_end 75
  expect_file run/checkpoints/latest
}

# A rank is killed: the other one ends as well, and the next start uses the last periodic checkpoint.
case_killed() {
  local began
  expect_exit 0 train 2 whole --checkpoint.every 7
  start train 2 parts --checkpoint.every 7 $slowly
  wait_for_steps parts 17
  began=$SECONDS
  kill -9 "$(pgrep -n -P "$pid")"
  if wait "$pid"; then complain "a rank was killed, but mpirun exited with 0"; fi
  pid=
  expect_number "seconds until the other rank ended" $((SECONDS - began)) "<=" 5
  expect_exit 0 train 2 parts --checkpoint.every 7
  expect_same_run whole parts
}

# All processes are killed while checkpoints are written, several times.
case_saving() {
  local round
  expect_exit 0 train 2 whole
  for round in 1 2 3; do
    start train 2 parts --checkpoint.every 1
    wait_for_steps parts $((round * 6))
    sleep 0.0$((RANDOM % 9))
    # shellcheck disable=SC2046
    kill -9 $(pgrep -P "$pid") "$pid" || true
    wait "$pid" || true
    pid=
  done
  expect_exit 0 train 2 parts --checkpoint.every 1
  expect_same_run whole parts
}

# If the newest checkpoints are damaged or truncated, the run continues from the one before them.
case_damaged() {
  local newest file
  expect_exit 0 train 2 run --checkpoint.every 10
  newest=$(newest_checkpoint run)
  printf 'damage%.0s' {1..333} | dd of="$newest" bs=1 seek=$(($(stat -c %s "$newest") / 2)) conv=notrunc status=none
  truncate -s -1000 "$(printf '%s\n' run/checkpoints/step-*.h5 | tail -n 2 | head -n 1)"
  expect_exit 3 "$millrace" inspect "$newest"
  expect_line "^error: $newest"
  expect_exit 0 train 2 run --checkpoint.every 10
  expect_lines 2 'step-.*damaged'
  for file in run/checkpoints/step-*.h5; do truncate -s 100 "$file"; done
  expect_exit 3 train 2 run
}

# A run that resumes on another number of ranks continues with the next samples, and prints a warning.
case_ranks() {
  expect_exit 0 train 2 run --train.steps 10
  expect_exit 0 train 3 run --train.steps 20
  expect_line 'resuming with different ranks'
  expect_equal "steps of both parts" "$(seq 20)" "$(metrics run step)"
  metrics run samples | sort -cun || complain "the number of samples was expected to grow with each step: $(metrics run samples | xargs)"
}

# Block shuffle resumes in the middle of an epoch, but not with another order of samples.
case_order() {
  local blocks="--data.shuffle block --data.shuffle_block 8 --optim.schedule constant"
  expect_exit 0 train 2 whole $blocks --data.shuffle_window 60 --train.steps 20
  expect_exit 0 train 2 parts $blocks --data.shuffle_window 60 --train.steps 10
  expect_exit 2 train 1 parts $blocks --data.shuffle_window 32 --train.steps 20
  expect_line 'blocks of 8 .*windows of 8 .*4 blocks'
  expect_exit 0 train 2 parts $blocks --data.shuffle_window 60 --train.steps 20
  expect_same_run whole parts
  expect_exit 0 train 1 random --train.steps 10
  expect_exit 2 train 1 random $blocks --train.steps 20
  expect_exit 2 train 1 random --data.shuffle_window 60 --train.steps 20
}

# Tensors that the ranks write in parts whose rows do not divide evenly, with AdamW's moments.
case_large() {
  set -- --model.name mlp --model.hidden 1101 --optim.name adamw --optim.schedule constant --run.precision fp32 --train.epochs 1
  expect_exit 0 train 3 whole "$@"
  expect_says 0 'checksums agree' "$millrace" inspect "$(newest_checkpoint whole)"
  expect_exit 0 train 3 parts "$@" --train.steps 7
  expect_exit 0 train 3 parts "$@"
  expect_same_run whole parts
}

# When the time of run.walltime or of the Slurm job runs out, the run writes a checkpoint and exits with 75.
case_walltime() {
  local first second
  set -- --checkpoint.every none --train.evaluate off
  expect_exit 0 train 2 whole "$@"
  set -- "$@" --test.all_reduce_delay 30
  expect_exit 75 train 2 parts "$@" --run.walltime 3s --run.stop_margin 2500ms
  expect_line "stopped early .*time"
  first=$(steps_of parts)
  expect_number "steps until run.walltime" "$first" ">" 0
  expect_number "steps until run.walltime" "$first" "<" 42
  expect_file "$(checkpoint_of parts "$first")"
  SLURM_JOB_END_TIME=$(($(date +%s) + 4)) expect_exit 75 train 2 parts "$@" --run.stop_margin 3s
  expect_line "stopped early .*time"
  second=$(steps_of parts)
  expect_number "steps until the job's end" "$second" ">" "$first"
  expect_number "steps until the job's end" "$second" "<" 42
  expect_exit 0 train 2 parts --checkpoint.every none --train.evaluate off
  expect_same_run whole parts
}

# run.resume = must fails without a checkpoint; never starts from the beginning and removes old results.
case_must() {
  expect_exit 3 train 1 run --run.precision fp32 --run.resume must
  expect_lines 1 '^error: .*run\.resume.*run/checkpoints'
  expect_lines 1 .
  expect_exit 0 train 2 run --train.steps 9 --optim.schedule constant
  expect_exit 0 train 2 run --train.steps 12 --optim.schedule constant --run.resume must
  expect_line '^resumed at step 9 of 12'
  cp -r run before
  expect_exit 0 train 2 run --train.steps 5 --optim.schedule constant --run.resume never
  expect_no_line '^resumed'
  sed -i 5q before/metrics.jsonl
  expect_same_metrics run before
  expect_equal "checkpoints after run.resume = never" step-00000005.h5 "$(cd run/checkpoints && echo step-*)"
  # The summary of the old run does not describe a new run that is killed.
  start train 1 run --run.threads 1 --train.epochs 2000 --run.resume never
  wait_for grep -q '"steps": 28000' run/run.json
  wait_for_steps run 2
  { kill -9 "$pid" && wait "$pid"; } || true
  pid=
  expect_no_file run/summary.json
  expect_exit 0 "$millrace" report run
  expect_texts run/report.html "interrupted"
}

# A second run in the folder of a running one is refused, and does not disturb the first. A Slurm job waits for the end
# of the other run, and finds the checkpoint that the other run wrote last.
case_twice() {
  start train 1 run --train.epochs 2000 --train.evaluate off --checkpoint.every none
  wait_for_steps run 3
  expect_exit 2 train 1 run
  expect_line 'in use'
  SLURM_JOB_ID=1 run_on 1 train -c net.cfg --run.dir run --train.epochs 2000 --train.steps 5 >waited 2>&1 &
  wait_for_line 'waiting up to' waited
  touch run/STOP
  expect_end 75
  wait $! || complain "the job that waited: $(cat waited)"
  expect_line 'finished already: nothing trained' waited
  expect_exit 0 train 1 run --train.steps 5 --optim.lr 0.5
  expect_line 'nothing trained\. without effect: .*optim\.lr \(0\.05 then, 0\.5 now\).*\. the run has done' out
  expect_no_line 'resuming with different [a-z]+\.' err
}

# Training continues while a disk is full. A last checkpoint that could not be written is an error, and
# the next start completes the run.
case_full_disk() {
  if [ -z "${MILLRACE_TEST_NAMESPACE:-}" ]; then
    unshare --mount true 2>/dev/null || skip "mount namespaces are not available"
    MILLRACE_TEST_NAMESPACE=1 unshare --mount "$tests/resume_test.sh" "$millrace" "$mpiexec" full_disk
    return
  fi
  mkdir disk
  mount -t tmpfs -o size=4m none disk || skip "a tmpfs cannot be mounted"
  at_exit umount disk
  expect_exit 0 train 2 whole
  local freed
  for freed in later soon; do
    start train 2 disk/$freed --checkpoint.every 4 --test.all_reduce_delay 10 --log.tensorboard on
    wait_for_steps disk/$freed 6
    dd if=/dev/zero of=disk/filler bs=4k status=none 2>/dev/null || true
    if [ $freed = soon ]; then
      wait_for_line '^warning: checkpoint of step' background
      wait_for_line '^warning: .*metrics\.jsonl' background
      rm disk/filler
      expect_end 0
    else
      expect_end 3
      expect_line '^error: .*checkpoint of step 42' background
      rm disk/filler
      expect_file disk/later/checkpoints/step-00000004.h5
      expect_equal "unfinished checkpoints" "" "$(find disk/later/checkpoints -name '*tmp*')"
    fi
    expect_line '^warning: checkpoint of step' background
    expect_line '^warning: .*metrics\.jsonl' background
    [ "$(grep -c TensorBoard background)" -le 1 ] || complain "expected at most one line about TensorBoard"
    [ $freed = soon ] || expect_exit 0 train 2 disk/later --checkpoint.every 4
    expect_same_run whole disk/$freed
    rm -rf disk/$freed
  done
}

run_case "$3"
