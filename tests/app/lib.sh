#!/bin/bash
# Functions that the shell tests share: a scratch folder, ways to start the program, and expectations that
# print the expected and the actual value.
#
# A test script begins like this, and ends with `run_case "$3"`, which calls the function case_CASE:
#
#     #!/bin/bash
#     # What the script tests.
#     # Usage: NAME_test.sh MILLRACE MPIEXEC CASE
#     set -euo pipefail
#     source "$(dirname "$0")/lib.sh" "$1" "$2"
#
# After that line the current folder is an empty scratch folder, which is removed at the end, and these
# variables are set: $root (the source tree), $tests (tests/app), $build (the build folder), $millrace,
# $mpiexec, $faulty_files (the library of tests/support/faulty_files.cpp).
#
# A failed expectation prints one message and the test continues; `die` ends the test. A command that
# fails outside an expectation ends the test, too. The script then exits with 1. `skip REASON` exits
# with 77, which ctest reports as skipped. The output of a command goes to the files `out` and `err`,
# and that of a background command to `background`.
#
# Patterns are extended regular expressions. Keep them short: a key, a file name, a number.
# shellcheck disable=SC2034  # the variables are for the scripts that source this file

tests=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
root=$(readlink -f "$tests/../..")
millrace=$(readlink -f "$1")
mpiexec=$2
build=$(dirname "$millrace")
faulty_files=$build/tests/app/libfaulty_files.so

# Run as root, with more ranks than cores, and without binding, under Open MPI 4 and 5.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
# A rank that waits leaves its core to other ranks and other tests.
export OMPI_MCA_mpi_yield_when_idle=1
# A process without mpirun starts no daemon of its own, which saves a quarter of its start.
export OMPI_MCA_ess_singleton_isolated=1

# ---- failures, the scratch folder and the end of a test ----

failures=0
failed_command=
pid=          # process id of the background command, empty if there is none
exit_hooks=()

# complain MESSAGE: reports a failed expectation: the recent output, then the line of the script, as logs are cut from the front.
complain() {
  local frame=1 file
  while [[ ${FUNCNAME[frame]} != case_* && ${FUNCNAME[frame]} != main ]]; do frame=$((frame + 1)); done
  for file in out err background; do
    if [ -s $file ] && [ $file -nt .shown ]; then
      echo "--- end of '$file':"
      tail -n 40 $file
    fi
  done
  touch .shown
  echo "FAILED: $(basename "${BASH_SOURCE[frame]}"):${BASH_LINENO[frame - 1]}: $*"
  failures=$((failures + 1))
}
die() {
  complain "$@"
  exit 1
}
skip() {
  echo "skipped: $*"
  exit 77
}
# at_exit COMMAND...: runs the command at the end of the test, before the scratch folder is removed.
at_exit() { exit_hooks+=("$(printf '%q ' "$@")"); }
finish() {
  local status=$? hook
  [ $BASHPID = $$ ] || exit $status  # a background subshell that was stopped before its command began
  trap - EXIT ERR
  set +e
  case $status in
  0 | 77) [ $failures -eq 0 ] || status=1 ;;
  *) [ $failures -gt 0 ] || echo "FAILED: a command ended with $status: $failed_command" ;;
  esac
  if [ "$pid" ]; then kill "$pid" && wait "$pid"; fi 2>/dev/null
  for hook in "${exit_hooks[@]}"; do eval "$hook"; done
  cd / && rm -rf "$folder"
  exit $status
}
set -E
trap 'failed_command="${BASH_SOURCE[0]##*/}:$LINENO: $BASH_COMMAND"' ERR
trap finish EXIT
trap 'exit 1' INT TERM
folder=$(mktemp -d "${TMPDIR:-/tmp}/millrace-test-XXXXXX")
cd "$folder"
# All runs of a user share a folder of MPI sessions, which Open MPI 4 creates and removes as needed: of two that start at
# the same moment, one can fail ("mkdir ... File exists"). So each start has a folder of its own.
mkdir .sessions
export OMPI_MCA_orte_tmpdir_base=$folder/.sessions
own_sessions() { OMPI_MCA_orte_tmpdir_base=$(mktemp -d "$folder/.sessions/XXXXXX"); }

# run_case CASE: calls the function case_CASE.
run_case() {
  declare -F "case_$1" >/dev/null || die "there is no case '$1'"
  "case_$1"
}

# ---- starting programs ----

under=()  # a command that starts the program on each rank: env, or a script that calls "$@"
# mpi RANKS COMMAND...
mpi() {
  own_sessions
  ${launch:-} "$mpiexec" --bind-to none -n "$1" "${@:2}"
}
# run_on RANKS ARGUMENT...: runs the program on that many ranks; one rank without mpirun.
run_on() {
  if [ "$1" = 1 ]; then
    own_sessions
    ${launch:-} "${under[@]}" "$millrace" "${@:2}"
  else
    mpi "$1" "${under[@]}" "$millrace" "${@:2}"
  fi
}
# train RANKS RUN_FOLDER OPTION...: trains with the configuration net.cfg.
train() { run_on "$1" train -c net.cfg --run.dir "${@:2}"; }
# slow_disk SECONDS: delays each later read of samples from a packed shard by SECONDS; 0 ends the delay.
slow_disk() {
  under=()
  [ "$1" = 0 ] || under=(env "LD_PRELOAD=$faulty_files" "MILLRACE_TEST_FAULTS=train-,4096,100000000,0,1000000000,$1")
}

# start COMMAND...: runs the command in the background. $pid is its process id (mpirun's for several ranks).
start() {
  : >background
  if [ "$(type -t "$1")" = function ]; then
    (launch=exec && "$@") >background 2>&1 &
  else
    "$@" >background 2>&1 &
  fi
  pid=$!
}
# expect_end CODE: waits for the background command and checks its exit code.
expect_end() {
  local got=0
  wait "$pid" || got=$?
  pid=
  [ $got -eq "$1" ] || complain "the background command was expected to exit with $1, but exited with $got"
}
# wait_for COMMAND...: repeats the command until it succeeds, for at most $wait_seconds (30).
wait_for() {
  local limit=${wait_seconds:-30}
  local end=$((SECONDS + limit))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || die "expected within $limit s, but it did not happen: $*"
    sleep 0.02
  done
}
# wait_for_line PATTERN FILE, wait_for_steps RUN_FOLDER STEPS
wait_for_line() { wait_for grep -qE -- "$1" "$2"; }
wait_for_steps() { wait_for has_steps "$1" "$2"; }
has_steps() { [ "$(steps_of "$1")" -ge "$2" ]; }

# ---- expectations ----

# expect_exit CODE COMMAND...
expect_exit() {
  local expected=$1 got=0
  shift
  "$@" >out 2>err || got=$?
  [ $got -eq "$expected" ] || complain "expected exit code $expected, got $got: $*"
}
# expect_says CODE PATTERN COMMAND...: checks the exit code, and that exactly one line of the output matches.
expect_says() {
  expect_exit "$1" "${@:3}"
  expect_lines 1 "$2"
}
# expect_line PATTERN [FILE...], expect_no_line PATTERN [FILE...], expect_lines COUNT PATTERN [FILE...]:
# check that the files together have at least one, no, or exactly COUNT matching lines. Default: out and err.
expect_line() { count_lines 1 1000000000 "at least one line that matches" "$@"; }
expect_no_line() { count_lines 0 0 "no line that matches" "$@"; }
expect_lines() { count_lines "$1" "$1" "exactly $1 line(s) that match" "${@:2}"; }
count_lines() {
  local least=$1 most=$2 what=$3 pattern=$4 count
  shift 4
  [ $# -gt 0 ] || set -- out err
  count=$(cat -- "$@" | grep -cE -- "$pattern") || true
  [ "$count" -ge "$least" ] && [ "$count" -le "$most" ] ||
    complain "expected $what '$pattern' in $*, found $count: $(cat -- "$@" | grep -E -m 3 -- "$pattern")"
}
# expect_texts FILE TEXT...: checks that the file contains each text literally.
expect_texts() {
  local file=$1 text
  shift
  for text in "$@"; do grep -qF -- "$text" "$file" || complain "expected the text '$text' in $file, but it is not there"; done
}
# expect_equal WHAT EXPECTED GOT
expect_equal() { [ "$2" = "$3" ] || complain "$1: expected '$2', got '$3'"; }
# expect_number WHAT NUMBER OPERATOR LIMIT: compares with an operator of awk, like "<".
expect_number() {
  awk -v a="$2" -v b="$4" "BEGIN { exit !(a ~ /[0-9]/ && b ~ /[0-9]/ && a + 0 $3 b + 0) }" ||
    complain "$1: expected a number $3 $4, got '$2'"
}
# expect_same_files FILE OTHER
expect_same_files() { cmp -s "$1" "$2" || complain "$1 and $2 were expected to be equal: $(diff -a "$1" "$2" | head -n 4 | cut -c 1-400)"; }
expect_file() { [ -e "$1" ] || complain "expected a file $1, but there is none"; }
expect_no_file() { [ ! -e "$1" ] || complain "expected no file $1, but there is one"; }

# ---- the files of a run ----

# metrics RUN_FOLDER KEY: prints the value of the key for each step.
metrics() { sed -n "s/.*[{,]\"$2\":\([^,}]*\).*/\1/p" "$1/metrics.jsonl"; }
# summary RUN_FOLDER KEY: prints a value of the top level of summary.json.
summary() { sed -n "s/^  \"$2\": \([^,]*\),\{0,1\}$/\1/p" "$1/summary.json"; }
steps_of() { if [ -e "$1/metrics.jsonl" ]; then wc -l <"$1/metrics.jsonl"; else echo 0; fi; }
# checkpoint_of RUN_FOLDER STEP, newest_checkpoint RUN_FOLDER: print the path.
checkpoint_of() { printf '%s/checkpoints/step-%08d.h5' "$1" "$2"; }
newest_checkpoint() { echo "$1/checkpoints/$(cat "$1/checkpoints/latest")"; }
# expect_same_metrics RUN OTHER: checks that all metrics but the times are equal bit for bit.
expect_same_metrics() {
  [ "$(steps_of "$1")" -gt 0 ] || complain "expected metrics of $1, but there are none"
  sed 's/,"samples_per_second".*"other_ms":[^,}]*//; s/,"speed_of_light":[^,}]*//' "$1/metrics.jsonl" >"$1.metrics"
  sed 's/,"samples_per_second".*"other_ms":[^,}]*//; s/,"speed_of_light":[^,}]*//' "$2/metrics.jsonl" >"$2.metrics"
  expect_same_files "$1.metrics" "$2.metrics"
}
# expect_same_run RUN OTHER: compares the metrics, and the checksums of all tensors of the newest checkpoints.
expect_same_run() {
  local run
  expect_same_metrics "$1" "$2"
  for run in "$1" "$2"; do
    "$millrace" inspect --tensors "$(newest_checkpoint "$run")" | grep crc32 >"$run.tensors" || complain "expected tensors in the checkpoint of $run"
  done
  expect_same_files "$1.tensors" "$2.tensors"
}

# ---- small data sets and configurations ----

# pack_table FOLDER OPTION...: packs 240 rows of 100 numbers with a label from three classes, which depends
# on the first column. The samples begin at byte 4096 of a shard. The table remains as table.csv.
pack_table() {
  write_table 240 100 >table.csv
  "$millrace" pack --x table.csv --y-name 101 --out "$@" >out 2>err || die "pack failed"
}
write_table() {
  awk -v rows="$1" -v columns="$2" 'BEGIN {
    for (r = 0; r < rows; r++) { for (c = 0; c < columns; c++) printf "%d,", (r * 7 + c * c) % 13; print int(r * 7 % 13 / 5) } }'
}
# table_config: writes net.cfg for the table in set/, with one loader worker per rank.
table_config() {
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
}
# conv_model: prints the [model] section of a small convolutional network.
conv_model() {
  printf '%s\n' '[model]' 'name = layers' 'layers = conv 8 3x3 pad=same' 'layers = batchnorm' 'layers = relu' 'layers = globalpool' 'layers = linear outputs'
}
# small_config: writes net.cfg for 42 steps that use everything a checkpoint must contain: momentum, batch
# norm, dropout, augmentation, 3 micro-batches per step (on two ranks), a loss scale that falls and grows.
small_config() {
  cat >net.cfg <<'CFG'
[run]
precision = fp16
[data]
train = synthetic:images:rows=500,shape=10x10x3,classes=4
valid = synthetic:images:rows=100,shape=10x10x3,classes=4,seed=9
augment = on
crop_pad = 2
[model]
name = layers
layers = conv 8 3x3 pad=same
layers = batchnorm
layers = relu as=trunk
layers = conv 8 3x3 pad=same
layers = batchnorm
layers = add trunk
layers = relu
layers = globalpool
layers = dropout 0.2
layers = linear outputs
[train]
epochs = 3
global_batch = 36
micro_batch = 6
[test]
force_overflow_at = 20
[optim]
lr = 0.05
scale_interval = 8
loss_scale = 1024
CFG
}
