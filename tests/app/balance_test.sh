#!/bin/bash
# Shares of unequal ranks: balance_test.sh MILLRACE MPIEXEC quick|table. quick: what is learned stays the same, a run's shares can be
# repeated to the bit and go on where they were. table: what it gives, for docs/performance.md, beside the sum of what the
# ranks do each on its own; with a quota of processor time where control groups can be made. Fails where a row is below WITHIN
# of the sum TRIES times, as those runs are not side by side.
set -u
millrace=$1
mpiexec=$2
folder=$(mktemp -d)
group=
trap 'rm -rf "$folder"; [ -z "$group" ] || rmdir "$group"' EXIT
cd "$folder" || exit 1
export OMPI_MCA_mpi_yield_when_idle=1
failures=0
complain() { echo "FAILED: $*"; failures=$((failures + 1)); }

cat >net.cfg <<'CFG'
[run]
threads = 1
[data]
train = synthetic:images:rows=2000,shape=6x6x3,classes=4
workers = 0
[model]
name = layers
layers = conv 8 3x3 pad=same
layers = batchnorm
layers = relu
layers = globalpool
layers = linear outputs
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
# Computing is pretended: each rank's time for a sample is in `times`, separated by blanks.
cat >ranked <<SH
#!/bin/bash
times=(\$TIMES)
exec "$millrace" "\$@" --test.compute_delay \${times[\${OMPI_COMM_WORLD_RANK:-0}]}
SH
chmod +x ranked
# train DIR TIMES ARGS...
train() {
  local times=($2) dir=$1
  TIMES=$2 "$mpiexec" --bind-to none -n ${#times[@]} ./ranked train -c net.cfg --run.dir "$dir" "${@:3}" >"$dir.log" 2>&1 || { complain "$dir failed"; cat "$dir.log"; }
}
fields() { sed 's/,"samples_per_second".*//' "$1/metrics.jsonl"; }
shares() { sed -n 's/.*"micro_batches":\[\(.*\)\]}$/\1/p' "$1/shares.jsonl"; }
# Samples/s, by the median of some steps: rate DIR FROM TO
rate() { sed -n "$2,$3s/.*\"step_ms\":\([0-9.]*\).*/\1/p" "$1/metrics.jsonl" | sort -g | awk '{ t[NR] = $1 } END { print 64e3 / t[int((NR + 1) / 2)] }'; }

case $3 in
quick)
  train even "2ms 6ms" --train.balance even --train.micro_batch 4 --train.steps 25
  train auto "2ms 6000us" --train.steps 25  # files written together, by ranks whose configurations differ in length
  [ -e even/shares.jsonl ] && complain "even shares are written down"
  [ "$(shares auto | head -n 1)" = 8,8 ] || complain "did not begin with even shares: $(shares auto)"
  last=$(shares auto | tail -n 1)
  case $last in 10,6 | 11,5 | 12,4 | 13,3) ;; *) complain "rank 1 takes three times as long, but the shares are $last" ;; esac
  grep -qE "^step [0-9]+: a micro-batch takes [0-9.]+ ms on rank 0, [0-9.]+ ms on rank 1; micro-batches a rank 8 8 -> " auto.log || complain "no word of the new shares: $(cat auto.log)"
  awk -v a="$(rate auto 17 25)" -v e="$(rate even 17 25)" 'BEGIN { exit !(a > 1.1 * e) }' || complain "$(rate auto 17 25) samples/s, $(rate even 17 25) with even shares"
  # The same gradients but for the order of sums, batch norm's statistics included.
  paste <(fields even) <(fields auto) | sed 's/[^\t]*"loss":\([^,]*\),[^\t]*/\1/g' |
    awk '{ d = ($1 - $2) / $1 } d > 1e-5 || d < -1e-5 { exit 1 } END { exit NR != 25 }' || complain "other losses than with even shares"
  train again "0ms 0ms" --train.balance auto/shares.jsonl --train.steps 25
  cmp <(fields auto) <(fields again) || complain "the run's own shares do not repeat it"
  cmp auto/shares.jsonl again/shares.jsonl || complain "its shares are written down otherwise"
  train auto "2ms 6ms" --train.steps 30
  [ "$(shares auto | tail -n 1)" = "$last" ] && [ "$(sed -n '$s/{"step":\([0-9]*\),.*/\1/p' auto/shares.jsonl)" -eq 26 ] ||
    complain "did not go on with the shares that it had: $(cat auto/shares.jsonl)"
  train auto "0ms 0ms 0ms" --train.steps 31
  [ "$(shares auto | tail -n 1 | tr ',' '\n' | wc -l)" -eq 3 ] || complain "another number of ranks keeps the old shares"
  TIMES="0ms 0ms 0ms" "$mpiexec" --bind-to none -n 3 ./ranked train -c net.cfg --run.dir other --train.balance again/shares.jsonl >other.log 2>&1
  [ $? -eq 2 ] && grep -q "^error: train.balance: again/shares.jsonl:1 is of 16 micro-batches on 2 ranks, this run has 32 on 3" other.log || complain "shares of other ranks: $(cat other.log)"
  "$millrace" train -c net.cfg --run.dir other --train.balance nowhere >other.log 2>&1
  [ $? -eq 2 ] && grep -q "^error: train.balance: cannot read nowhere" other.log || complain "no file of shares: $(cat other.log)"
  train again "0ms 0ms" --train.balance even --train.micro_batch 4 --train.steps 26
  [ -e again/shares.jsonl ] && complain "shares.jsonl tells of shares that are not so any more"
  ;;
table)
  # The speed of the ranks, each a run of its own, at the same time, since they share a processor; against all together. row NAME TIMES
  row() {
    local try
    for try in $(seq "${TRIES:-1}"); do measured "$@" && return; done
    complain "$1: less than ${WITHIN:-0.9} of the sum, ${TRIES:-1} times"
  }
  measured() {
    local times=($2) sum=0 i pids=
    for i in "${!times[@]}"; do
      rm -rf "one$i"
      train "one$i" "${times[i]}" --train.steps 14 --train.micro_batch 2 &
      pids="$pids $!"
    done
    wait $pids
    for i in "${!times[@]}"; do sum=$(awk -v s="$sum" -v r="$(rate "one$i" 3 7)" 'BEGIN { print s + r }'); done
    rm -rf even auto
    train even "$2" --train.steps 12 --train.balance even --train.micro_batch 2
    train auto "$2" --train.steps 40 --train.micro_batch 2
    awk -v n="$1" -v e="$(rate even 4 12)" -v a="$(rate auto 26 40)" -v s="$sum" -v h="$(shares auto | tail -n 1)" -v most="${WITHIN:-0.9}" 'BEGIN {
      printf "| %s | %.0f | %.0f | %.0f | **%.0f %%** | %s |\n", n, s, e, a, 100 * a / s, h; exit a < most * s }'
  }
  echo "| ranks | each a run of its own, summed, samples/s | even | auto | of the sum | shares |"
  echo "|---|---|---|---|---|---|"
  row "2, one half as fast" "6ms 12ms"
  row "3, one a third as fast" "6ms 6ms 18ms"
  row "4, of three speeds" "6ms 6ms 12ms 24ms"
  for parent in /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup; do  # of version 1, and 2
    made=$(mktemp -d $parent/millrace-XXXXXX 2>/dev/null) && group=$made && break
  done
  quota() { { { echo 20000 >"$group/cpu.cfs_period_us" && echo "$1" >"$group/cpu.cfs_quota_us"; } || echo "$1 20000" >"$group/cpu.max"; } 2>/dev/null; }
  if [ -z "$group" ] || ! quota 10000; then
    echo "real computing under a quota: skipped, no control group with one can be made in /sys/fs/cgroup"
  else
    cat >ranked <<SH
#!/bin/bash
times=(\$TIMES)
[ "\${times[\${OMPI_COMM_WORLD_RANK:-0}]}" = half ] && echo \$\$ >"$group/cgroup.procs"
exec "$millrace" "\$@" --model.name mlp --model.hidden 3072 3072
SH
    row "2, computing, one with half of a core's time" "whole half"
    quota 4000  # on a busy machine the other rank may have no more than half of a core either
    train named "whole half" --train.steps 8 --train.balance even --train.micro_batch 2
    grep -q "straggler: rank 1 on .*: a CPU quota throttled it for " named.log || complain "the quota is not named: $(grep straggler named.log)"
  fi
  ;;
*) complain "no case $3" ;;
esac
[ $failures -eq 0 ]
