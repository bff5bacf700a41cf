# What the trainings on the simulated CUDA share: data, a configuration, and comparisons of losses. Source it with
# MILLRACE_SIMULATED and MPIEXEC.
source "$(dirname "${BASH_SOURCE[0]}")/../app/lib.sh" "$1" "$2"
unset MILLRACE_SIMULATED_SEED

write_table 600 32 >table.csv
expect_exit 0 "$millrace" pack --x table.csv --y-name 33 --out set --shard-size 40000
cat >net.cfg <<'CFG'
[run]
device = cuda
[data]
train = set/train-*.h5
[model]
hidden = 32 32
[train]
global_batch = 48
steps = 12
[optim]
lr = 0.05
schedule = constant
[cuda]
autotune = off
[checkpoint]
every = none
CFG

# expect_close RUN EXPECTED TOLERANCE [OPERATOR [KEY]]: the losses of the two runs, or the values of another key of
# metrics.jsonl, differ by at most TOLERANCE, relative.
expect_close() {
  local worst
  worst=$(paste <(metrics "$1" "${5:-loss}") <(metrics "$2" "${5:-loss}") |
    awk '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > w) w = d } END { printf "%.3g", NR ? w : 1 }')
  expect_number "the largest relative difference between the losses (${5:-loss}) of $1 and $2" "$worst" "${4:-<=}" "$3"
}
# expect_bits RUN EXPECTED: the losses of the two runs are equal.
expect_bits() { expect_equal "the losses of $1" "$(metrics "$2" loss)" "$(metrics "$1" loss)"; }
# last_valid RUN KEY: a value of the last evaluation.
last_valid() { sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$1/validation.jsonl" | tail -n 1; }
top1() { last_valid "$1" accuracy; }
