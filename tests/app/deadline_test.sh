#!/bin/bash
# A rank that stops, or waits for a file system, ends the run everywhere: exit 5, one line, a flight record. A pause of
# all ranks does not.
# Usage: deadline_test.sh MILLRACE MPIEXEC start|train|hosts|files|other|pause
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"

small_config
seconds=2
printf '[comm]\ntimeout = %ss\n' $seconds >>net.cfg

# expect_stop RANKS RANK PLACE PATTERN OPTION...: the rank stops itself at the begin of PLACE, a name of watchdog/judge.cpp.
# The time includes a start that takes some seconds on a busy machine.
expect_stop() {
  local began=$SECONDS
  rm -rf run
  MILLRACE_TEST_STOP_AT=$2:$3 expect_exit 5 train "$1" run --run.seed $$ "${@:5}"
  expect_number "seconds until the end after a stop at $3" $((SECONDS - began)) "<=" $((seconds + 5 + 10))
  expect_lines 1 'error: '
  expect_lines 1 "error: rank $2 on .*\\($4, (before the first|after) step.*no sign of life"
  expect_equal "processes that are left" "" "$(pgrep -f -- "--run.seed $$ ?" || true)"
}
expect_record() {
  expect_line "\"rank\":$1,.*\"seconds_without_heartbeat\":[1-9]" run/flight.json
  python3 -c 'import json, sys; assert len(json.load(open("run/flight.json"))["ranks"]) == int(sys.argv[1])' "$2" || complain "flight.json"
}

case_start() {
  expect_stop 2 1 MPI_Init "start, MPI_Init"
  expect_stop 2 0 "shared memory" "setup, shared memory"
  expect_stop 2 1 index "index"
  expect_stop 2 1 MPI_Finalize "end, MPI_Finalize"
}

case_train() {
  expect_stop 2 1 evaluation "evaluation"
  expect_record 1 2
  expect_stop 2 0 checkpoint "checkpoint" --train.evaluate off --run.resume never
  expect_record 0 2
}

case_hosts() {
  export MILLRACE_TEST_RANKS_PER_HOST=1
  expect_stop 3 0 evaluation "(training|evaluation).*"  # the last news may be older than the stop
  expect_record 0 3
  export MILLRACE_TEST_RANKS_PER_HOST=2
  expect_stop 4 2 evaluation "evaluation"
  expect_record 2 4
}

case_files() {
  # The thread that writes the second host's part of a checkpoint.
  cat >net.cfg <<'CFG'
[data]
train = synthetic:images:rows=500,shape=10x10x3,classes=4
[model]
hidden = 4096
[train]
epochs = 100
global_batch = 20
[checkpoint]
every = 10
CFG
  cat >rank_1_hangs <<'SH'
#!/bin/bash
[ "${OMPI_COMM_WORLD_RANK:-0}" = 0 ] || export LD_PRELOAD=$FAULTY_FILES
exec "$@"
SH
  chmod +x rank_1_hangs
  export FAULTY_FILES=$faulty_files MILLRACE_TEST_STUCK_WRITES=checkpoints/
  under=(./rank_1_hangs)
  MILLRACE_TEST_RANKS_PER_HOST=1 expect_exit 5 train 2 run --comm.timeout ${seconds}s
  expect_lines 1 'error: rank 1 on .*\(checkpoint, file system, after step.*comm\.timeout'
  expect_record_of_file
  # One rank without mpirun.
  under=(env "LD_PRELOAD=$faulty_files")
  expect_exit 5 train 1 alone --comm.timeout ${seconds}s
  expect_lines 1 'error: rank 0 on .*\(checkpoint, file system'
}

# Reads of samples, and the commands pack and eval.
case_other() {
  pack_table set --shard-size 24000 --no-shuffle
  table_config
  under=(env "LD_PRELOAD=$faulty_files" "MILLRACE_TEST_FAULTS=train-,4096,100000000,0,1,-1")
  expect_exit 5 train 2 run --comm.timeout ${seconds}s
  expect_lines 1 'error: rank 0 on .*\(index, file system, before the first step.*comm\.timeout'
  under=(env "LD_PRELOAD=$faulty_files" "MILLRACE_TEST_FAULTS=train-,4096,28000,0,1,-1")
  expect_exit 5 train 2 run --comm.timeout ${seconds}s
  expect_lines 1 'error: rank [01] on .*\(training, file system, before the first step.*comm\.timeout'
  under=()
  write_table 2000 100 >large.csv
  MILLRACE_TEST_TIMEOUT=$seconds MILLRACE_TEST_STOP_AT="1:parallel HDF5" expect_exit 5 run_on 2 pack --x large.csv --y-name 101 --out large
  expect_lines 1 'error: rank 1 on .*parallel HDF5.*no sign of life'
}
expect_record_of_file() { expect_line '"rank":1,.*"seconds_in_file":[1-9]' run/flight.json; }

# A pause of three times the timeout. The ranks are stopped and continued one after the other.
case_pause() {
  local ranks
  start train 2 run --comm.timeout 1s --train.epochs 1000000 --checkpoint.every none --run.seed $$
  wait_for_steps run 3
  ranks=$(pgrep -f -- "^[^ ]*millrace train .*--run.seed $$" | grep -vx "$pid")
  # shellcheck disable=SC2086
  kill -STOP $ranks
  sleep 3
  # shellcheck disable=SC2086
  kill -CONT $ranks
  wait_for_steps run $(($(steps_of run) + 20))
  sleep 1.5
  touch run/STOP
  expect_end 75
  expect_no_line 'error: ' background
}

run_case "$3"
