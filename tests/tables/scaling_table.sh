#!/bin/bash
# Compares the predictions of `millrace scaling` with real runs on these numbers of ranks. Prints a table for
# docs/benchmarks.
#
# Computation is simulated by sleeping, except for the row "computed". The all-reduce is slowed by
# test.all_reduce_delay, or uses links between virtual hosts whose rate tc limits. Each row is the median of
# TURNS runs (3). The script fails if a predicted step is wrong by more than WITHIN (10) percent; rows of
# real computation are not judged.
# Usage: scaling_table.sh SOURCE_DIR MILLRACE MPIEXEC [KIND...]
set -euo pipefail
source "$(dirname "$0")/../app/lib.sh" "$2" "$3"
source "$tests/../tables/table.sh"
only=("${@:4}")
virtual_hosts s 10.78.0 br-ms
turns=${TURNS:-3}
within=${WITHIN:-10}

# 182 k parameters, 0.73 MB of gradients, six buckets. A step computes for 320 ms, two thirds of it in the
# backward pass. There is so little real computation, and the all-reduce is so slow, that other work on
# the cores hardly matters.
cat >net.cfg <<'CFG'
[run]
threads = 1
resume = never
device = cpu
[data]
train = synthetic:images:rows=4096,shape=8x8x3,classes=4
workers = 1
[model]
hidden = 256 256 256
[test]
compute_delay = 80ms
[comm]
bucket_size = 128KiB
progress = thread
[checkpoint]
every = none
CFG

# With a higher priority, ranks that sleep or poll continue in time even if other programs run. Otherwise
# other programs would distort the times.
first=(nice -n -10)
if [ "$("${first[@]}" nice 2>/dev/null)" != -10 ]; then
  first=()
  ! awk -v cores="$(nproc)" '{ exit !($1 > cores) }' /proc/loadavg || skip "other programs use the cores, and this user may not raise the priority of the test"
fi
# number SECTION NAME FILE: prints the first number with that name after the key SECTION of a JSON file.
number() { awk -v after="\"$1\":" -v name="\"$2\":" '$1 == after { on = 1 } on && $1 == name { sub(",", "", $2); print $2; exit }' "$3"; }
# step RANKS RUN_FOLDER OPTION...: trains a few steps with mpirun or on virtual hosts, even on one rank.
step() { expect_exit 0 mpi "$1" "$millrace" train -c net.cfg --run.dir "$2" --train.steps 12 "${@:3}"; }

# row NAME FROM TO weak|strong KEYS -- OPTIONS: prints a row with the duration of a step on TO ranks: predicted from a
# run on FROM ranks, and measured.
row() {
  local name=$1 from=$2 to=$3 scaling=$4 keys=() base=() predicted=() exposed=() measured=() error
  shift 4
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    keys+=("$1")
    shift
  done
  shift
  local batch=$((${samples:-4} * from)) then=$((${samples:-4} * to)) predict=("$millrace")
  [ "$scaling" = weak ] || then=$batch
  [[ " $* " != *" --measure "* ]] || predict=(mpi "${measured_on:-$from}" "$millrace")
  for _ in $(seq "$turns"); do
    # shellcheck disable=SC2086
    step "$from" a "${keys[@]}" --train.global_batch $batch ${more:-} ${more_before:-}
    # shellcheck disable=SC2086
    step "$to" b "${keys[@]}" --train.global_batch $then ${more:-} ${more_after:-}
    expect_exit 0 "${predict[@]}" scaling a --ranks "$to" --json "$@"
    cp out predicted.json
    expect_exit 0 "$millrace" scaling b --ranks 1 --json
    base+=("$(number run step predicted.json)")
    measured+=("$(number run step out)")
    predicted+=("$(number "$scaling" step predicted.json)")
    exposed+=("$(number "$scaling" exposed predicted.json)")
  done
  error=$(awk -v p="$(median "${predicted[@]}")" -v m="$(median "${measured[@]}")" 'BEGIN { printf "%.1f", (m > 0) ? 100 * (p / m - 1) : 1e3 }')
  awk -v base="$(median "${base[@]}")" -v p="$(median "${predicted[@]}")" -v m="$(median "${measured[@]}")" -v e="$error" -v n="$name" -v f="$from" -v t="$to" \
    -v exposed="$(median "${exposed[@]}")" 'BEGIN { printf "| %s | %d -> %d | %.1f | %.1f (%.1f) | %.1f | %+.1f %% |\n", n, f, t, 1e3 * base, 1e3 * p, 1e3 * exposed, 1e3 * m, e }'
  [ "${judged:-yes}" = no ] || expect_number "error of '$name' in percent" "${error#-}" "<=" "$within" >&2
}

printf '| run | ranks | step, ms | predicted, ms (exposed communication) | measured, ms | error |\n|---|---|---|---|---|---|\n'
# A ring all-reduce over a link of 8 MB/s takes 125 ms per MB on two ranks, and 1.5 times as long on four.
if wanted shared; then
  fast=(--ranks-per-node 2 --local-link 8MB/s --local-latency 0s)
  slow=(--ranks-per-node 2 --local-link 2MB/s --local-latency 0s)
  row "all-reduces of 125 ms/MB, overlapped" 1 2 weak --test.all_reduce_delay 0.125 -- "${fast[@]}"
  row "500 ms/MB, too long to overlap" 1 2 weak --test.all_reduce_delay 0.5 -- "${slow[@]}"
  row "the same in bf16" 1 2 weak --test.all_reduce_delay 0.5 --comm.grad_dtype bf16 -- "${slow[@]}"
  row "the same, comm.overlap = off" 1 2 weak --test.all_reduce_delay 0.5 --comm.overlap off -- "${slow[@]}"
  row "the same, optim.zero = 1" 1 2 weak --test.all_reduce_delay 0.25 --optim.zero 1 -- "${slow[@]}"
  row "the same batch on more ranks" 1 2 strong --test.all_reduce_delay 0.5 -- "${slow[@]}"
  more_before="--test.all_reduce_delay 0.5" more_after="--test.all_reduce_delay 0.75" row "a ring; links from the run's all-reduces" 2 4 weak -- --ranks-per-node 4
fi
if { wanted hosts || wanted slow; } && start_hosts 4 32mbit; then
  # The ring algorithm, not the one that Open MPI would choose for these sizes.
  export OMPI_MCA_coll_tuned_use_dynamic_rules=1 OMPI_MCA_coll_tuned_allreduce_algorithm=4
  more="--test.compute_delay 160ms"  # messages wait for a core, which matters less in longer steps
  if wanted hosts; then
    row "hosts, links of 32 Mbit/s" 1 2 weak -- --link 32Mb/s --latency 50us
    row "the same" 2 4 weak -- --link 32Mb/s --latency 50us --messages ring
    row "the same, links by --measure" 2 4 weak -- --measure --messages ring
  fi
  if wanted slow; then
    bash "$root/tests/support/slurm/hosts.sh" limit 10mbit
    measured_on=2 row "hosts, links of 10 Mbit/s, by --measure" 1 2 weak -- --measure
    row "the same, links from the run's all-reduces" 2 4 weak -- --messages ring
  fi
  stop_hosts
  more=
fi
# Real computation, which other programs on the cores disturb.
if wanted real; then
  judged=no
  first=()
  samples=512
  measured_on=2
  row "computed, 512 samples per rank; link by --measure" 1 2 weak --test.compute_delay 0s --comm.progress inline --model.hidden 1024 1024 1024 -- --ranks-per-node 2 --measure
fi
