#!/bin/bash
# Plants one bottleneck at a time into real runs and compares the verdict with what its advice gains:
# diagnosis_table.sh MILLRACE MPIEXEC FAULTY_FILES [KIND...]. Prints a table for docs/benchmarks. Advice that diagnose has tried is
# followed in separate runs, in alternating rounds with the original configuration. Fails if a bottleneck is not named, or if fewer than
# nine of ten predictions are within 15 % (or 0.05x). For a busy machine: TURNS=1 WITHIN=40.
set -u
support=$(dirname "$(readlink -f "$0")")/../support/slurm
millrace=$(readlink -f "$1")
mpiexec=$2
library=$(readlink -f "$3")
shift 3
turns=${TURNS:-3} tolerance=${WITHIN:-15}
folder=$(mktemp -d) group=
export NSDIR=$folder/hosts NSNAME=d NSNET=10.79.0 NSBRIDGE=br-md
trap 'bash "$support/hosts.sh" down; [ -z "$group" ] || rmdir "$group"; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder" || exit 1
export OMPI_MCA_mpi_yield_when_idle=1
failures=0 within=0 predicted=0

awk 'BEGIN { for (r = 0; r < 6000; r++) { for (c = 0; c < 100; c++) printf "%d,", (r * 7 + c * c) % 13; print r % 3 } }' >table.csv
"$millrace" pack --x table.csv --y-name 101 --out set --shard-size 1MiB >log 2>&1 || { cat log; exit 1; }
"$millrace" pack --x table.csv --y-name 101 --out single --codec zstd --chunk-rows 1 >log 2>&1 || { cat log; exit 1; }
awk 'BEGIN { for (r = 0; r < 3000; r++) { for (c = 0; c < 1000; c++) printf "%d,", (r * 7 + c * c) % 13; print r % 3 } }' >wide.csv
"$millrace" pack --x wide.csv --y-name 1001 --out packed --codec zstd --chunk-rows 64 >log 2>&1 || { cat log; exit 1; }
cat >net.cfg <<'CFG'
[run]
threads = 1
[data]
train = set/train-*.h5
reader = direct
workers = 1
[model]
hidden = 64
[optim]
lr = 0.001
[train]
global_batch = 8
[checkpoint]
every = none
CFG

# run COMMAND ARGS...: runs millrace with the planted fault on $ranks ranks; with virtual hosts, one rank on each.
hosts=
run() {
  if [ "$hosts" ]; then
    "$support/on-hosts" "$mpiexec" "$ranks" env $fault "$millrace" "$@"
  elif [ "$ranks" = 1 ]; then
    env $fault "$millrace" "$@"
  else
    "$mpiexec" --bind-to none -n "$ranks" env $fault "$millrace" "$@"
  fi
}
# Samples/s: skips the first tenth of the steps, divides the rest into nine parts and averages the middle five. A moment in
# which the host gave this machine no time therefore does not count.
rate() {
  sed -E 's/.*"samples":([0-9]+),.*"step_ms":([0-9.]+),.*/\1 \2/' "$1/metrics.jsonl" |
    awk '{ s[NR] = $1; t[NR] = t[NR - 1] + $2 }
      END { first = int(NR / 10); for (p = 0; p < 9; p++) { a = first + int(p * (NR - first) / 9); b = first + int((p + 1) * (NR - first) / 9); if (b > a) print 1000 * (s[b] - s[a]) / (t[b] - t[a]) } }' |
    sort -g | awk '{ r[NR] = $1 } END { for (i = int(NR / 4) + 1; i <= NR - int(NR / 4); i++) { sum += r[i]; n++ } print sum / n }'
}
# Seconds of a run after its start-up.
seconds() {
  awk -F'[:,] *' '/^  "seconds": /{ all = $2 } /^      "startup": [{]/ { inside = 1 } inside && /"median"/ { start = $2; inside = 0 } END { print all - start }' "$1/summary.json"
}
middle() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }

# Options as a configuration file. A later file overrides an earlier one.
to_cfg() {
  while [ $# -gt 0 ]; do
    local key=${1#--} values=
    shift
    while [ $# -gt 0 ] && [[ $1 != --* ]]; do values="$values $1" && shift; done
    printf '[%s]\n%s =%s\n' "${key%%.*}" "${key#*.}" "$values"
  done
}

# kind NAME WORD STEPS ARGS...: the first line of the verdict must match ^WORD, a regular expression. STEPS: of the original run, a few
# seconds. The run with the advice takes about as long: it gets more steps, in proportion to the predicted gain.
kind() {
  local name=$1 word=$2 steps=$3 line key value promised gain='' ok=yes
  shift 3
  to_cfg "$@" >kind.cfg
  if [ "$word" = "${stated:-}" ]; then
    rm -rf r
    run train -c net.cfg -c kind.cfg --run.dir r --train.steps "$steps" >out 2>&1 || { cat out; failures=$((failures + 1)); }
  else
    run diagnose -c net.cfg -c kind.cfg >out 2>&1 || { cat out; failures=$((failures + 1)); }
  fi
  line=$(grep -m 1 -E "^[a-z-]+(-bound|ed): |^nothing worth changing: " out)
  [[ $line =~ ^$word ]] || { ok=no && failures=$((failures + 1)); }
  read -r key value promised <<<"$(sed -nE 's/.*\. ([a-z.]+_?[a-z]*) .* -> ([^ ]+) gives ([0-9.]+)x$/\1 \2 \3/p' <<<"$line")"
  if [ "$promised" ]; then
    local before=() after=()
    to_cfg "--$key" "$value" >advice.cfg
    local more=$steps
    [ "$word" = "${stated:-}" ] || more=$(awk -v s="$steps" -v p="$promised" -v k="$key" 'BEGIN { printf "%d", k == "train.global_batch" ? s : s * p }')
    for _ in $(seq "$turns"); do
      rm -rf a b
      run train -c net.cfg -c kind.cfg --run.dir a --train.steps "$steps" >log 2>&1 &&
        run train -c net.cfg -c kind.cfg -c advice.cfg --run.dir b --train.steps "$more" >log 2>&1 || { cat log; failures=$((failures + 1)); }
      if [ "$word" = checkpoint-bound ]; then before+=("$(seconds b)") after+=("$(seconds a)"); else before+=("$(rate a)") after+=("$(rate b)"); fi
    done
    gain=$(awk -v a="$(middle "${before[@]}")" -v b="$(middle "${after[@]}")" 'BEGIN { printf "%.2f", b / a }')
    predicted=$((predicted + 1))
    awk -v p="$promised" -v g="$gain" -v w="$tolerance" 'BEGIN { d = p - g; if (d < 0) d = -d; exit !(d <= 0.05 || d <= w / 100 * p) }' && within=$((within + 1)) || ok="$ok, but not within $tolerance %"
  fi
  printf '| %s | %s | %s | %s | %s | %s |\n' "$name" "$(sed -E 's/(;|\. ).*//' <<<"$line")" "$(sed -nE 's/.*\. ([a-z.]+_?[a-z]* .* -> .*)/\1/p' <<<"$line")" "${promised:-}" "$gain" "$ok"
}
wanted() { [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $1 "* ]]; }
only=("$@")

slow_reads() { echo "LD_PRELOAD=$library MILLRACE_TEST_FAULTS=train-,4096,100000000,0,1000000000,$1"; }
printf '| planted | first line | its advice | predicted | gained | named |\n|---|---|---|---|---|---|\n'
ranks=1 fault=$(slow_reads 0.001)
wanted disk && kind "a disk of 1 ms a read, one worker" input-bound 400 --data.train 'single/train-*.h5' --data.chunk_cache 1KiB
wanted reads && kind "the same, and steps of 128" input-bound 36 --data.train 'single/train-*.h5' --data.chunk_cache 1KiB --train.global_batch 128
fault=
wanted codec && kind "Zstandard chunks of 64 rows, a cache of two" "input-bound: .* data.(shuffle|chunk_cache)" 400 --data.train 'packed/train-*.h5' --data.chunk_cache 512KiB --train.global_batch 32 --model.hidden 128
wanted threads && kind "8 compute threads on a rank's cores" "compute-bound: .* run.threads" 1600 --run.threads 8 --run.precision bf16 --model.hidden 1024 1024 --train.global_batch 64 --data.workers 0
wanted precision && kind "fp32 on wide layers, where bf16 is native" "compute-bound: .* run.precision" 300 --model.hidden 1024 1024 --train.global_batch 128
wanted batch && kind "2 samples a step" "compute-bound: .* train.global_batch" 12000 --train.global_batch 2 --data.reader mmap --model.hidden 512 512
# Makes a control group whose processes get $1 reads per second of the disk of this folder.
throttled() {
  local disk root=/sys/fs/cgroup
  disk=$(findmnt -no MAJ:MIN -T .) || return 1
  if [ -e $root/blkio ]; then
    group=$root/blkio/millrace-$$
    mkdir $group && echo "$disk $1" >$group/blkio.throttle.read_iops_device
  else
    group=$root/millrace-$$
    echo +io >$root/cgroup.subtree_control && mkdir $group && echo "$disk riops=$1" >$group/io.max
  fi
}
if wanted device; then
  if throttled 2000 2>log; then
    # 300,000 images of 28x28, read without the page cache.
    number() { printf "\\\\x%02x" $(($1 >> 24)) $(($1 >> 16 & 255)) $(($1 >> 8 & 255)) $(($1 & 255)); }
    { printf "\\x00\\x00\\x08\\x03$(number 300000)$(number 28)$(number 28)" && head -c $((300000 * 784)) /dev/urandom; } >x.idx
    { printf "\\x00\\x00\\x08\\x01$(number 300000)" && head -c 300000 /dev/zero; } >y.idx
    "$millrace" pack --x x.idx --y y.idx --out large >log 2>&1 || { cat log; exit 1; }
    rm x.idx
    for file in large/*.h5; do dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 2>/dev/null; done
    printf '#!/bin/bash\necho $$ >%s/cgroup.procs\nexec "$@"\n' "$group" >in_group
    chmod +x in_group
    fault=$folder/in_group
    kind "a real disk of 2,000 reads/s (cgroup)" input-bound 150 --data.train 'large/train-*.h5' --data.reader uring --model.hidden 1024 1024 --train.global_batch 64
    fault=
  else
    echo "skipped: no cgroup limits the disk of $folder: $(tail -n 1 log)" >&2
  fi
fi
stated=checkpoint-bound
wanted checkpoint && kind "a checkpoint every step" checkpoint-bound 100 --checkpoint.every 1 --data.reader mmap --model.hidden 512 512 --train.global_batch 256
stated=
ranks=2
wanted sums && kind "sums of 50 ms a MB" "communication-bound: .* comm.grad_dtype" 60 --test.all_reduce_delay 0.05 --data.reader mmap --model.hidden 400 400
# Between hosts, where a message costs the kernel's time: what one costs between cores of a virtual machine changes by half
# from one second to the next.
if wanted buckets; then
  if bash "$support/hosts.sh" up 2 1gbit 2>log; then
    hosts=yes
    kind "two hosts, buckets of 1 KiB" "communication-bound: .* comm.bucket_size" 300 --comm.bucket_size 1KiB --data.train "$folder/set/train-*.h5" --data.reader mmap --model.hidden 256 256
    hosts=
    bash "$support/hosts.sh" down
  else
    echo "skipped: $(tail -n 1 log)" >&2
  fi
fi
if wanted link; then
  if bash "$support/hosts.sh" up 2 64mbit 2>log; then
    hosts=yes
    kind "two hosts, a real link of 64 Mbit/s (tc)" "communication-bound: .* comm.grad_dtype" 40 --data.train "$folder/set/train-*.h5" --data.reader mmap --model.hidden 400 400
    hosts=
  else
    echo "skipped: $(tail -n 1 log)" >&2
  fi
fi
stated=imbalanced
if wanted straggler; then
  cat >slow_rank <<SH
#!/bin/bash
[ "\${OMPI_COMM_WORLD_RANK:-0}" = 1 ] && export LD_PRELOAD=$library MILLRACE_TEST_FAULTS=train-,4096,100000000,0,1000000000,0.002
exec "\$@"
SH
  chmod +x slow_rank
  fault=$folder/slow_rank
  kind "rank 1 has a disk of 2 ms a read" imbalanced 60
fi
stated=
if wanted slow; then
  cat >slow_rank <<SH
#!/bin/bash
[ "\${OMPI_COMM_WORLD_RANK:-0}" = 1 ] && exec "\$@" --test.compute_delay 12ms
exec "\$@" --test.compute_delay 4ms
SH
  chmod +x slow_rank
  fault=$folder/slow_rank
  kind "rank 1 takes three times as long for a sample" "imbalanced: .* train.balance" 40 --train.global_batch 32 --data.reader mmap
fi
ranks=1 fault=
stated="nothing worth changing"
wanted healthy && kind "nothing" "nothing worth changing" 300 --data.reader mmap --model.hidden 1024 1024 --train.global_batch 64
stated=
wanted healthy && kind "nothing, and all changes tried" "nothing worth changing" 300 --data.reader mmap --model.hidden 1024 1024 --train.global_batch 512 --run.precision bf16
echo
echo "$within of $predicted predictions within $tolerance % of what was gained, medians of $turns runs; $failures kinds not named"
[ $failures -eq 0 ] && [ $((10 * within)) -ge $((9 * predicted)) ]
