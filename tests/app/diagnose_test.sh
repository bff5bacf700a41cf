#!/bin/bash
# Bottlenecks put into real runs on purpose: diagnose_test.sh MILLRACE MPIEXEC FAULTY_FILES CASE. FAULTY_FILES is the library of
# tests/support/faulty_files.cpp, here a slow disk. Only what is far outside of a busy machine's noise is asked for.
set -u
millrace=$1
mpiexec=$2
library=$3
case=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() { echo "FAILED: $*"; cat out err; failures=$((failures + 1)); }

awk 'BEGIN { for (r = 0; r < 240; r++) { for (c = 0; c < 100; c++) printf "%d,", (r * 7 + c * c) % 13; print r % 3 } }' >table.csv
"$millrace" pack --x table.csv --y-name 101 --out set --shard-size 24000 >out 2>err || complain "pack failed"
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
first_line() { grep -m 1 -q "$1" <(head -n 1 out) || complain "the first line is not: $1"; }
# gain KEYS LEAST: what the best trial of a change of one of these keys gave.
gain() {
  awk -v keys="$1" -v least="$2" '$1 ~ "^(" keys ")$" && $3 == "->" { split($0, part, ": "); g = part[2] + 0; if (g > best) best = g }
    END { exit !(best >= least) }' out || complain "no change of $1 gave $2x"
}

case $case in
input)  # each read of the files takes 1 ms: one worker is too few, whatever the processor does meanwhile. Nor can they be mapped
  LD_PRELOAD=$library MILLRACE_TEST_FAULTS="train-,0,4096,19,1000000000,0;train-,4096,100000000,0,1000000000,0.001" "$millrace" diagnose -c net.cfg --seconds 0.05 >out 2>err ||
    complain "diagnose failed"
  grep -q "^  data.reader -> mmap: not tried, .*train-.* cannot be mapped (No such device)" out || complain "files that cannot be mapped are no reason"
  first_line "^input-bound: .* data\.[a-z]* .* gives "
  gain "data.workers|data.reader" 1.25
  grep -A 3 "^the parts of the input, each by itself:" out | grep -q "^  read  .* samples/s .*  baseline " || complain "no word of what reading gives"
  grep -q "ms per step: .* also without the optimizer$" out || complain "no step without the optimizer"
  grep -q "^peaks measured here: matrix product .* GFLOP/s" out || complain "no word of what the device can do"
  [ ! -e runs ] || complain "diagnose has written something"
  # What four workers were said to give they give, within what a busy machine leaves of it.
  promised=$(awk '$1 == "data.workers" && $4 == 4 { split($0, part, ": "); print part[2] + 0 }' out)
  for workers in 1 4; do
    LD_PRELOAD=$library MILLRACE_TEST_FAULTS=train-,4096,100000000,0,1000000000,0.001 "$millrace" train -c net.cfg --run.dir w$workers --data.workers $workers --train.steps 90 --checkpoint.every none \
      >log 2>&1 || complain "no run with $workers workers: $(cat log)"
  done
  awk -F'[:,] *' -v p="${promised:-0}" '$1 ~ /"samples_per_second"/ { rate[++n] = $2 } END { g = rate[2] / rate[1]; exit !(n == 2 && g > p / 1.7 && g < p * 1.7) }' w1/summary.json w4/summary.json ||
    complain "workers 1 -> 4 were to give ${promised:-nothing}: $(grep -h '"samples_per_second"' w1/summary.json w4/summary.json)"
  "$millrace" diagnose -c net.cfg --seconds 0 >out 2>err
  [ $? -eq 2 ] || complain "no time is no error"
  grep -q "^error: command line: --seconds: " err || complain "no word about --seconds"
  ;;
sums)  # sleep most of the step; MPI's own waits leave the core to the other rank
  export OMPI_MCA_mpi_yield_when_idle=1
  "$mpiexec" --bind-to none -n 2 "$millrace" diagnose -c net.cfg --seconds 0.05 --data.reader mmap --model.hidden 400 400 --test.all_reduce_delay 0.02 --run.threads 1 --data.prefetch 2 \
    >out 2>err || complain "diagnose failed on two ranks"
  first_line "^communication-bound: .* gives "
  gain "comm.grad_dtype" 1.25
  # 0.02 s a MB of 0.8 MB
  awk '/^an all-reduce of the whole gradient .* ms by itself/ { for (i = 1; i < NF; i++) if ($i == "takes") t = $(i + 1) } END { exit !(t > 14 && t < 100) }' out || complain "a sum by itself does not take 16 ms"
  # rank 1 takes three times as long for a sample; divided by speed, nothing is left to gain
  printf '#!/bin/bash\nexec "$@" --test.compute_delay $((2 + 4 * OMPI_COMM_WORLD_RANK))ms\n' >rank
  chmod +x rank
  for balance in even auto; do
    "$mpiexec" --bind-to none -n 2 ./rank "$millrace" diagnose -c net.cfg --seconds 0.3 --data.reader mmap --run.threads 1 --train.global_batch 32 --train.balance $balance >out 2>err ||
      complain "diagnose failed on unequal ranks"
    [ $balance = auto ] || first_line "^imbalanced: .* train.balance even -> auto gives "
  done
  ! grep -q "^imbalanced: " out || complain "the balanced run is called imbalanced"
  ;;
train)  # what a run says at its end, without any trial
  verdict() { grep -m 1 -E "^[a-z-]+(-bound|ed): |^nothing worth changing: " out; }
  set -- --train.steps 25 --checkpoint.every none
  LD_PRELOAD=$library MILLRACE_TEST_FAULTS=train-,4096,100000000,0,1000000000,0.002 "$millrace" train -c net.cfg --run.dir slow "$@" >out 2>err || complain "the run failed"
  verdict | grep -q "^input-bound: .* data.workers 1 -> [2-9].*: at most [0-9.]*x" || complain "slow reads: $(verdict)"
  grep -q '"advice": "data.workers 1 -> ' slow/summary.json || complain "summary.json does not say what to change"
  "$mpiexec" --bind-to none -n 2 "$millrace" train -c net.cfg --run.dir sums --data.reader mmap --test.all_reduce_delay 0.1 --run.threads 1 "$@" --model.hidden 400 400 >out 2>err ||
    complain "the run on two ranks failed"
  verdict | grep -q "^communication-bound: .* comm.grad_dtype none -> bf16.*: at most [0-9.]*x" || complain "slow sums: $(verdict)"
  grep -q "^    bucket 0: " out || complain "no figures of buckets"
  LD_PRELOAD=$library MILLRACE_TEST_FAULTS=train-,4096,100000000,0,1000000000,0.001 "$millrace" diagnose -c net.cfg --seconds 0.05 --budget 1ms >out 2>err || complain "diagnose failed in a millisecond"
  grep -q "^  data.workers -> 2: not tried, its time is up (--budget 0.001s)$" out || complain "it went on when its time was up"
  grep -q "^measured, ms per step: " out || complain "nothing was measured when its time was up"
  ;;
probe)  # measured after the run; asked to stop meanwhile, it tries no more. Reads take far longer than two ranks that share busy cores wait for each other
  "$mpiexec" --bind-to none -n 2 env LD_PRELOAD="$library" MILLRACE_TEST_FAULTS=train-,4096,100000000,0,1000000000,0.02 "$millrace" train -c net.cfg --run.dir probed \
    --train.steps 25 --checkpoint.every none --account.probe on --run.threads 1 >out 2>err || complain "the probed run failed"
  grep -q "^input-bound: .* gives [0-9.]*x" out || complain "no measured gain"
  grep -q "^trying data.workers = 2" err || complain "nothing was tried"
  grep -qE "^  linear +[0-9.]+ +[0-9.]+ " out && [ -s probed/layers.json ] || complain "no operations beside their roofline"
  said=$(sed -nE 's/^ *"verdict": "(.*)",?$/\1/p' probed/summary.json)
  [[ $said == input-bound:*" gives "* ]] && grep -qxF "$said" out || complain "summary.json does not hold what was measured: $said"
  "$millrace" report probed 2>err && grep -q "each beside its roofline" probed/report.html || complain "the page does not show them: $(cat err)"
  : >err  # or the lines of the run before are taken for this one's, and it is stopped before it has begun
  LD_PRELOAD=$library MILLRACE_TEST_FAULTS=train-,4096,100000000,0,1000000000,0.02 "$millrace" train -c net.cfg --run.dir stopped \
    --train.steps 25 --checkpoint.every none --account.probe on >out 2>err &
  for _ in {1..300}; do grep -q "^trying " err && break; sleep 0.1; done
  kill -TERM $!
  wait $! || complain "stopped in its probe, a finished run did not end with 0"
  [ "$(grep -c "^trying " err)" -eq 1 ] || complain "it went on trying"
  ;;
*) complain "no case $case" ;;
esac
[ $failures -eq 0 ]
