#!/bin/bash
# Compares the predictions of millrace scaling with real runs: scaling_table.sh SOURCE_DIR MILLRACE MPIEXEC [KIND...]. Prints a table for
# docs/benchmarks. Computing is simulated by sleeping, except in the rows that say so. All-reduces are slowed by test.all_reduce_delay, or use
# links of virtual hosts that tc limits. Fails if a predicted step is wrong by more than WITHIN (10) percent; rows with real computing
# are not judged. Each row is the median of TURNS (3) rounds.
set -u
support=$(readlink -f "$1")/tests/support/slurm
millrace=$(readlink -f "$2")
mpiexec=$3
shift 3
only=("$@")
folder=$(mktemp -d /tmp/millrace-scaling-XXXXXX)
export NSDIR=$folder/hosts NSNAME=s NSNET=10.78.0 NSBRIDGE=br-ms OMPI_MCA_mpi_yield_when_idle=1
trap 'exit 1' INT TERM
trap 'bash "$support/hosts.sh" down; rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
steps=12 turns=${TURNS:-3} within=${WITHIN:-10}

# 182 k parameters, 0.73 MB of gradients, six buckets. A step simulates 320 ms of computing, two thirds of it backward. The real
# computing is so small, and the all-reduces are so slow, that other work on the cores hardly matters.
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

complain() { echo "FAILED: $*" >&2; tail -n 5 log >&2; failures=$((failures + 1)); }
# run RANKS COMMAND...: on this host, or with one rank on each virtual host.
hosts=no
# With a higher priority, sleeping and polling threads wake up in time whatever else runs. Without it, other work distorts the times.
first=(nice -n -10)
if [ "$("${first[@]}" nice 2>/dev/null)" != -10 ]; then
  first=()
  awk -v cores="$(nproc)" '{ exit !($1 > cores) }' /proc/loadavg && echo "skipped: others use the cores, and no priority may be taken over them" && exit 77
fi
run() {
  local ranks=$1
  shift
  if [ $hosts = no ]; then
    "${first[@]}" "$mpiexec" --bind-to none -n "$ranks" "$millrace" "$@"
  else
    "${first[@]}" "$support/on-hosts" "$mpiexec" "$ranks" "$millrace" "$@"
  fi
}
train() {
  local ranks=$1 dir=$2
  shift 2
  run "$ranks" train -c net.cfg --run.dir "$dir" --train.steps "$steps" "$@" >log 2>&1 || complain "training on $ranks ranks"
}
# number AFTER NAME FILE: the first number called NAME after the key AFTER, in JSON with sorted keys.
number() { awk -v after="\"$1\":" -v name="\"$2\":" '$1 == after { on = 1 } on && $1 == name { sub(",", "", $2); print $2; exit }' "$3"; }

middle() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }

# row NAME FROM TO weak|strong KEYS -- OPTIONS: the step on TO ranks, predicted from a run on FROM ranks and measured, in alternating
# rounds; prints the medians.
row() {
  local name=$1 from=$2 to=$3 scaling=$4 keys=() base=() predicted=() exposed=() measured=() error
  shift 4
  while [ $# -gt 0 ] && [ "$1" != -- ]; do keys+=("$1") && shift; done
  shift
  local batch=$((${samples:-4} * from)) then=$((${samples:-4} * to)) asking=("$millrace")
  [ "$scaling" = strong ] && then=$batch
  [[ " $* " == *" --measure "* ]] && asking=(run "${measured_on:-$from}")
  for _ in $(seq "$turns"); do
    train "$from" a "${keys[@]}" --train.global_batch $batch ${more:-} ${more_before:-}
    train "$to" b "${keys[@]}" --train.global_batch $then ${more:-} ${more_after:-}
    "${asking[@]}" scaling a --ranks "$to" --json "$@" >p.json 2>log || complain "$name: no prediction"
    "$millrace" scaling b --ranks 1 --json >m.json 2>log || complain "$name: no measurement"
    base+=("$(number run step p.json)") measured+=("$(number run step m.json)")
    predicted+=("$(number "$scaling" step p.json)") exposed+=("$(number "$scaling" exposed p.json)")
  done
  error=$(awk -v p="$(middle "${predicted[@]}")" -v m="$(middle "${measured[@]}")" 'BEGIN { printf "%.1f", (m > 0) ? 100 * (p / m - 1) : 1e3 }')
  awk -v base="$(middle "${base[@]}")" -v p="$(middle "${predicted[@]}")" -v m="$(middle "${measured[@]}")" -v e="$error" -v n="$name" -v f="$from" -v t="$to" \
    -v exposed="$(middle "${exposed[@]}")" 'BEGIN { printf "| %s | %d -> %d | %.1f | %.1f (%.1f) | %.1f | %+.1f %% |\n", n, f, t, 1e3 * base, 1e3 * p, 1e3 * exposed, 1e3 * m, e }'
  [ "${judged:-yes}" = no ] || awk -v e="$error" -v w="$within" 'BEGIN { exit !(e <= w && e >= -w) }' || { failures=$((failures + 1)) && echo "FAILED: $name is missed by $error %" >&2; }
}
wanted() { [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $1 "* ]]; }

printf '| run | ranks | step, ms | predicted, ms (exposed communication) | measured, ms | error |\n|---|---|---|---|---|---|\n'
# A ring over a link of 8 MB/s takes 125 ms a MB on two ranks, half as long again on four.
if wanted shared; then
  fast=(--ranks-per-node 2 --local-link 8MB/s --local-latency 0s) slow=(--ranks-per-node 2 --local-link 2MB/s --local-latency 0s)
  row "all-reduces of 125 ms/MB, overlapped" 1 2 weak --test.all_reduce_delay 0.125 -- "${fast[@]}"
  row "500 ms/MB, too long to overlap" 1 2 weak --test.all_reduce_delay 0.5 -- "${slow[@]}"
  row "the same in bf16" 1 2 weak --test.all_reduce_delay 0.5 --comm.grad_dtype bf16 -- "${slow[@]}"
  row "the same, comm.overlap = off" 1 2 weak --test.all_reduce_delay 0.5 --comm.overlap off -- "${slow[@]}"
  row "the same, optim.zero = 1" 1 2 weak --test.all_reduce_delay 0.25 --optim.zero 1 -- "${slow[@]}"
  row "the same batch on more ranks" 1 2 strong --test.all_reduce_delay 0.5 -- "${slow[@]}"
  more_before="--test.all_reduce_delay 0.5" more_after="--test.all_reduce_delay 0.75" row "a ring; links from the run's all-reduces" 2 4 weak -- --ranks-per-node 4
fi
if wanted hosts || wanted slow; then
  if ! bash "$support/hosts.sh" up 4 32mbit 2>log; then
    echo "skipped: $(tail -n 1 log)" >&2
  else
    hosts=yes
    # Forces ring all-reduces; Open MPI would choose an algorithm by size.
    export OMPI_MCA_coll_tuned_use_dynamic_rules=1 OMPI_MCA_coll_tuned_allreduce_algorithm=4
    more="--test.compute_delay 160ms"  # messages wait for cores; longer steps make that matter less
    if wanted hosts; then
      row "hosts, links of 32 Mbit/s" 1 2 weak -- --link 32Mb/s --latency 50us
      row "the same" 2 4 weak -- --link 32Mb/s --latency 50us --messages ring
      row "the same, links by --measure" 2 4 weak -- --measure --messages ring
    fi
    if wanted slow; then
      bash "$support/hosts.sh" limit 10mbit
      measured_on=2 row "hosts, links of 10 Mbit/s, by --measure" 1 2 weak -- --measure
      row "the same, links from the run's all-reduces" 2 4 weak -- --messages ring
    fi
    hosts=no more=
  fi
fi
# Real computing: other work on the cores matters.
if wanted real; then
  judged=no first=() samples=512 measured_on=2
  row "computed, 512 samples per rank; link by --measure" 1 2 weak --test.compute_delay 0s --comm.progress inline --model.hidden 1024 1024 1024 -- --ranks-per-node 2 --measure
fi
[ $failures -eq 0 ]
