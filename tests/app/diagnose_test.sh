#!/bin/bash
# Bottlenecks put into real runs on purpose: diagnose_test.sh MILLRACE MPIEXEC FAULTY_FILES. FAULTY_FILES is the library of
# tests/support/faulty_files.cpp, here a slow disk. Only what is far outside of a busy machine's noise is asked for.
set -u
millrace=$1
mpiexec=$2
library=$3
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
# gain KEY VALUE LEAST: what the trial of this change gave.
gain() {
  awk -v key="$1" -v to="$2" -v least="$3" '$1 == key && $4 == to { split($0, part, ": "); g = part[2] + 0 } END { exit !(g >= least) }' out ||
    complain "$1 -> $2 did not give $3x"
}

# Each read of the files takes 0.3 ms: one worker is too few, whatever the processor does meanwhile.
LD_PRELOAD=$library MILLRACE_TEST_FAULTS=train-,4096,100000000,0,1000000000,0.0003 "$millrace" diagnose -c net.cfg --seconds 0.05 >out 2>err || complain "diagnose failed"
first_line "^input-bound: .* gives "
gain data.workers 4 1.7
[ ! -e runs ] || complain "diagnose has written something"

# Sums that take long, in a network of a megabyte.
"$mpiexec" --bind-to none -n 2 "$millrace" diagnose -c net.cfg --seconds 0.05 --data.train synthetic:images:rows=5000,shape=16x16x3,classes=4 \
  --model.hidden 512 --comm.test_delay 0.005 >out 2>err || complain "diagnose failed on two ranks"
first_line "^communication-bound: .*comm.compress none -> bf16 gives "

"$millrace" diagnose -c net.cfg --seconds 0 >out 2>err
[ $? -eq 2 ] || complain "no time is no error"
grep -q "^error: command line: --seconds: " err || complain "no word about --seconds"

[ $failures -eq 0 ]
