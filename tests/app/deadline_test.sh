#!/bin/bash
# A rank that stops, or waits for a file system, ends the run everywhere: exit 5, one line, a flight record. A pause of
# all ranks does not.
# Usage: deadline_test.sh MILLRACE MPIEXEC start|train|hosts|pairs|files|other|pause|lock
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"

small_config
seconds=2
printf '[comm]\ntimeout = %ss\n' $seconds >>net.cfg

# begin_stop RANKS RANK PLACE PATTERN OPTION...: starts a run in a folder of its own. The rank stops itself at the begin of
# PLACE, a name of watchdog/judge.cpp, or "PHASE, WAIT". end_stops checks the runs that were started since.
stops=0
checked=0
declare -A stop_patterns
begin_stop() {
  stops=$((stops + 1))
  mkdir -p "stop$stops"
  cp net.cfg "stop$stops"
  stop_patterns[$stops]=$4
  (cd "stop$stops" && stop_one "$$$stops" "${@:1:3}" "${@:5}") &
}
stop_one() {
  local code=0 began
  MILLRACE_TEST_STOP_AT=$3:$4 train "$2" run --run.seed "$1" "${@:5}" >out 2>err &
  until pgrep -r T -f -- "--run.seed $1 ?" >/dev/null || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
  began=$EPOCHREALTIME
  wait $! || code=$?
  echo "$code $(awk -v from="$began" -v to="$EPOCHREALTIME" 'BEGIN { print to - from }') $1" >result
}
end_stops() {
  local n code duration seed lines
  wait
  for n in $(seq $((checked + 1)) $stops); do
    read -r code duration seed <"stop$n/result"
    expect_equal "stop$n: the exit code" 5 "$code"
    expect_number "stop$n: seconds from the stop to the end" "$duration" "<=" $((seconds + 5))
    lines=$(cat "stop$n/out" "stop$n/err" | grep -a 'error: ' || true)
    [ "$(echo "$lines" | grep -cE "error: ${stop_patterns[$n]}")/$(echo "$lines" | wc -l)" = 1/1 ] ||
      complain "stop$n: expected one line that matches '${stop_patterns[$n]}', got '$lines'"
    expect_equal "stop$n: processes that are left" "" "$(pgrep -f -- "--run.seed $seed ?" || true)"
  done
  checked=$stops
}
# named RANK PLACE: the pattern of a line that names the stopped rank. PLACE is "PHASE, WAIT", or "PHASE" alone.
named() { echo "rank $1 on [^ ]+ \\($2, ${3:-before the first step}\\) gave no sign of life"; }
# expect_record STOP RANK RANKS
expect_record() {
  expect_line "\"rank\":$2,.*\"seconds_without_heartbeat\":[1-9]" "stop$1/run/flight.json"
  python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["ranks"]) == int(sys.argv[2])' "stop$1/run/flight.json" "$3" ||
    complain "stop$1: flight.json"
}

case_start() {
  begin_stop 2 1 MPI_Init "$(named 1 'start, MPI_Init')"
  begin_stop 2 0 "new communicator" "$(named 0 'start, new communicator')"
  begin_stop 2 0 "shared memory" "$(named 0 'setup, shared memory')"
  end_stops
  begin_stop 2 1 index "$(named 1 index)"
  begin_stop 2 0 "setup, broadcast" "$(named 0 'setup, broadcast')"
  begin_stop 2 1 open "$(named 1 open)"
  end_stops
}

case_train() {
  local after='after step [0-9]+'
  begin_stop 2 0 "training, all-reduce" "$(named 0 'training, all-reduce')"
  begin_stop 2 1 "training, all-reduce" "$(named 1 'training, all-reduce')" --model.sync_batch_norm on  # of a norm
  begin_stop 2 1 evaluation "$(named 1 evaluation 'after step 1[34]')"
  begin_stop 2 0 "evaluation, all-reduce" "$(named 0 'evaluation, all-reduce' "$after")"
  end_stops
  expect_record 3 1 2
  begin_stop 2 1 "checkpoint, barrier" "$(named 1 'checkpoint, barrier')"
  begin_stop 2 0 "checkpoint, file system" "$(named 0 'checkpoint, file system' "$after")" --train.evaluate off
  begin_stop 2 1 "end, barrier" "$(named 1 'end, barrier' 'after step 42')"
  begin_stop 2 0 MPI_Finalize "$(named 0 'end, MPI_Finalize' 'after step 42')"
  end_stops
  expect_record 6 0 2
}

# simulate_hosts RANKS_PER_HOST: for all runs from here on.
simulate_hosts() {
  seconds=4  # up to eleven processes start at once
  sed -i "s/^timeout = .*/timeout = ${seconds}s/" net.cfg
  export MILLRACE_TEST_RANKS_PER_HOST=$1
}

# The ranks of a host that is stopped as a whole cannot be named one by one before MPI has started and after it has ended.
case_hosts() {
  local host there='before the first step'
  host=$(uname -n)
  simulate_hosts 1
  # Another host gets news each 250 ms, and the steps before the stop may take less: the line can name an earlier phase.
  begin_stop 3 0 evaluation "rank 0 on $host \\((setup|index|open|training|evaluation|checkpoint), .*\\) gave no sign of life"
  begin_stop 2 1 MPI_Init "rank 1, not on this host, did not come to MPI_Init within .*all of this host, rank 0 on $host is there \\(start, MPI_Init, $there\\)"
  begin_stop 2 0 MPI_Finalize "rank 0 on $host did not come to MPI_Finalize within .*all of this host, rank 1 on $host is there \\(end, MPI_Finalize, after step 42\\)"
  end_stops
  expect_record 1 0 3
  begin_stop 3 0 MPI_Init "at least one of ranks 0, 2, not on this host, did not come to MPI_Init within .*all of this host, rank 1 on"
  end_stops
}

case_pairs() {
  local host
  host=$(uname -n)
  simulate_hosts 2
  begin_stop 4 2 evaluation "$(named 2 evaluation 'after step 1[34]')"
  begin_stop 4 2 MPI_Init "$(named 2 'start, MPI_Init')"
  end_stops
  expect_record 1 2 4
  begin_stop 4 3 MPI_Finalize "$(named 3 'end, MPI_Finalize' 'after step 42')"
  begin_stop 3 2 MPI_Init "rank 2, not on this host, did not come to MPI_Init within .*all of this host, ranks 0-1 on $host are there"
  end_stops
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

# A start that waits for the lock of its run folder is not late, but a rank that is stopped meanwhile is found.
case_lock() {
  local rank holder
  under=(env SLURM_JOB_ID=1)
  mkdir run
  flock run/lock sleep 5 &
  expect_exit 0 train 2 run --comm.timeout 1s
  expect_lines 1 'waiting up to'
  expect_no_line 'error: '
  for rank in 0 1; do
    flock run/lock sleep 60 &
    holder=$!
    start train 2 run --run.seed $$
    wait_for_line 'waiting up to' background
    kill -STOP "$(pid_of_rank $rank)"
    expect_end 5
    expect_lines 1 'error: ' background
    expect_lines 1 "error: rank $rank on [^ ]+ \\(setup, [a-zH5 -]+, before the first step\\) gave no sign of life" background
    pkill -P $holder
    wait $holder || true
  done
}
pid_of_rank() {
  local each
  for each in $(pgrep -f -- "^[^ ]*millrace train .*--run.seed $$"); do
    grep -qz "^OMPI_COMM_WORLD_RANK=$1$" "/proc/$each/environ" && echo "$each" && return
  done
}

run_case "$3"
