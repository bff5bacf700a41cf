#!/bin/bash
# Creates one bottleneck at a time in real runs, and checks the verdict and the gain of its advice. Prints a
# table for docs/benchmarks.
#
# If the verdict predicts a gain, runs with and without the advised change alternate, and the table has the
# measured gain beside the predicted one. The script fails if a verdict does not name the bottleneck, or if
# fewer than nine of ten predictions are within WITHIN percent (15) or 0.05x. Each gain is the median of
# TURNS runs (3). On a machine that may be busy: TURNS=1 WITHIN=40.
# Usage: diagnosis_table.sh MILLRACE MPIEXEC FAULTY_FILES FAULTY_CALLS [KIND...]
set -euo pipefail
source "$(dirname "$0")/../app/lib.sh" "$1" "$2"
source "$tests/../tables/table.sh"
faulty_files=$(cd "$OLDPWD" && readlink -f "$3")
faulty_calls=$(cd "$OLDPWD" && readlink -f "$4")
only=("${@:5}")
turns=${TURNS:-3}
tolerance=${WITHIN:-15}
virtual_hosts d 10.79.0 br-md
within=0
predicted=0

write_table 6000 100 >table.csv
write_table 3000 1000 >wide.csv
expect_exit 0 "$millrace" pack --x table.csv --y-name 101 --out set --shard-size 1MiB
expect_exit 0 "$millrace" pack --x table.csv --y-name 101 --out single --codec zstd --chunk-rows 1
expect_exit 0 "$millrace" pack --x wide.csv --y-name 1001 --out packed --codec zstd --chunk-rows 64
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

# rate RUN_FOLDER: prints samples/s. The steps after the first tenth are cut into nine parts, and the five
# parts of middle speed are averaged, so that a short disturbance by other programs does not count.
rate() {
  paste -d ' ' <(metrics "$1" samples) <(metrics "$1" step_ms) |
    awk '{ s[NR] = $1; t[NR] = t[NR - 1] + $2 }
      END { first = int(NR / 10); for (p = 0; p < 9; p++) { a = first + int(p * (NR - first) / 9); b = first + int((p + 1) * (NR - first) / 9); if (b > a) print 1000 * (s[b] - s[a]) / (t[b] - t[a]) } }' |
    sort -g | awk '{ r[NR] = $1 } END { for (i = int(NR / 4) + 1; i <= NR - int(NR / 4); i++) { sum += r[i]; n++ } print sum / n }'
}
# seconds RUN_FOLDER: prints the duration of the run without its startup.
seconds() {
  awk -F'[:,] *' '/^  "seconds": /{ all = $2 } /^      "startup": [{]/ { inside = 1 } inside && /"median"/ { start = $2; inside = 0 } END { print all - start }' "$1/summary.json"
}
# to_cfg --KEY VALUE... ...: prints the keys as a configuration file.
to_cfg() {
  local key values
  while [ $# -gt 0 ]; do
    key=${1#--}
    values=
    shift
    while [ $# -gt 0 ] && [[ $1 != --* ]]; do
      values="$values $1"
      shift
    done
    printf '[%s]\n%s =%s\n' "${key%%.*}" "${key#*.}" "$values"
  done
}

# kind NAME PATTERN STEPS OPTION...: prints a row for the bottleneck that $under and OPTION create on $ranks
# ranks. The first line of the verdict must match ^PATTERN. The verdict is that of a run if $stated is not
# empty, and that of diagnose otherwise. STEPS of the unchanged run take some seconds; the run with the
# advice gets more steps in proportion to the predicted gain.
kind() {
  local name=$1 pattern=$2 steps=$3 line key value promised gain='' named=yes
  shift 3
  to_cfg "$@" >kind.cfg
  if [ "${stated:-}" ]; then
    rm -rf r
    expect_exit 0 run_on "$ranks" train -c net.cfg -c kind.cfg --run.dir r --train.steps "$steps"
  else
    expect_exit 0 run_on "$ranks" diagnose -c net.cfg -c kind.cfg
  fi
  line=$(cat out err | grep -m 1 -E '^[a-z-]+(-bound|ed): |^nothing worth changing: ') || true
  if [[ ! $line =~ ^$pattern ]]; then
    named=no
    complain "$name: expected a first line that matches '$pattern', got '$line'" >&2
  fi
  read -r key value promised <<<"$(sed -nE 's/.*\. ([a-z.]+_?[a-z]*) .* -> ([^ ]+) gives ([0-9.]+)x$/\1 \2 \3/p' <<<"$line")"
  if [ "$promised" ]; then
    local before=() after=() more=$steps
    to_cfg "--$key" "$value" >advice.cfg
    # If the advice is a larger batch, each step takes longer.
    [ "${stated:-}" ] || [ "$key" = train.global_batch ] || more=$(awk -v s="$steps" -v p="$promised" 'BEGIN { printf "%d", s * p }')
    for _ in $(seq "$turns"); do
      rm -rf a b
      expect_exit 0 run_on "$ranks" train -c net.cfg -c kind.cfg --run.dir a --train.steps "$steps"
      expect_exit 0 run_on "$ranks" train -c net.cfg -c kind.cfg -c advice.cfg --run.dir b --train.steps "$more"
      if [ "$pattern" = checkpoint-bound ]; then
        before+=("$(seconds b)")
        after+=("$(seconds a)")
      else
        before+=("$(rate a)")
        after+=("$(rate b)")
      fi
    done
    gain=$(awk -v a="$(median "${before[@]}")" -v b="$(median "${after[@]}")" 'BEGIN { printf "%.2f", b / a }')
    predicted=$((predicted + 1))
    if awk -v p="$promised" -v g="$gain" -v w="$tolerance" 'BEGIN { d = p - g; if (d < 0) d = -d; exit !(d <= 0.05 || d <= w / 100 * p) }'; then
      within=$((within + 1))
    else
      named="$named, but not within $tolerance %"
    fi
  fi
  printf '| %s | %s | %s | %s | %s | %s |\n' "$name" "$(sed -E 's/(;|\. ).*//' <<<"$line")" "$(sed -nE 's/.*\. ([a-z.]+_?[a-z]* .* -> .*)/\1/p' <<<"$line")" "${promised:-}" "$gain" "$named"
}

printf '| planted | first line | its advice | predicted | gained | named |\n|---|---|---|---|---|---|\n'
ranks=1
slow_disk 0.001
! wanted disk || kind "a disk of 1 ms a read, one worker" input-bound 400 --data.train 'single/train-*.h5' --data.chunk_cache 1KiB
! wanted reads || kind "the same, and steps of 128" input-bound 36 --data.train 'single/train-*.h5' --data.chunk_cache 1KiB --train.global_batch 128
slow_disk 0
! wanted codec || kind "Zstandard chunks of 64 rows, a cache of two" "input-bound: .* data.(shuffle|chunk_cache)" 400 --data.train 'packed/train-*.h5' --data.chunk_cache 512KiB --train.global_batch 32 --model.hidden 128
! wanted threads || kind "8 compute threads on a rank's cores" "compute-bound: .* run.threads" 1600 --run.threads 8 --run.precision bf16 --model.hidden 1024 1024 --train.global_batch 64 --data.workers 0
! wanted precision || kind "fp32 on wide layers, where bf16 is native" "compute-bound: .* run.precision" 300 --model.hidden 1024 1024 --train.global_batch 128
! wanted batch || kind "2 samples a step" "compute-bound: .* train.global_batch" 12000 --train.global_batch 2 --data.reader mmap --model.hidden 512 512

# throttle READS: creates a cgroup whose processes get READS reads a second from the disk of this folder.
throttle() {
  local disk root=/sys/fs/cgroup
  disk=$(findmnt -no MAJ:MIN -T .) || return
  if [ -e $root/blkio ]; then
    group=$root/blkio/millrace-$$
    mkdir $group && echo "$disk $1" >$group/blkio.throttle.read_iops_device || return
  else
    group=$root/millrace-$$
    echo +io >$root/cgroup.subtree_control && mkdir $group && echo "$disk riops=$1" >$group/io.max || return
  fi
}
if wanted device; then
  group=
  if throttle 2000 2>log; then
    # 300,000 images of 28x28, dropped from the page cache. A step takes as long as 64 reads.
    number() { printf "\\\\x%02x" $(($1 >> 24)) $(($1 >> 16 & 255)) $(($1 >> 8 & 255)) $(($1 & 255)); }
    { printf "\\x00\\x00\\x08\\x03$(number 300000)$(number 28)$(number 28)" && head -c $((300000 * 784)) /dev/urandom; } >x.idx
    { printf "\\x00\\x00\\x08\\x01$(number 300000)" && head -c 300000 /dev/zero; } >y.idx
    expect_exit 0 "$millrace" pack --x x.idx --y y.idx --out large
    rm x.idx
    for file in large/*.h5; do dd of="$file" oflag=nocache conv=notrunc,fdatasync count=0 status=none; done
    printf '#!/bin/bash\necho $$ >%s/cgroup.procs\nexec "$@"\n' "$group" >in_group
    chmod +x in_group
    under=("$folder/in_group")
    kind "a real disk of 2,000 reads/s (cgroup)" input-bound 150 --data.train 'large/train-*.h5' --data.reader uring --model.hidden 1024 1024 --train.global_batch 64
    under=()
  else
    echo "skipped: no cgroup limits the disk of $folder: $(tail -n 1 log)" >&2
  fi
  [ -z "$group" ] || at_exit rmdir "$group"
fi
stated=yes
! wanted checkpoint || kind "a checkpoint every step" checkpoint-bound 100 --checkpoint.every 1 --data.reader mmap --model.hidden 512 512 --train.global_batch 256
# Sleeps in place of a disk, which makes the same row repeatable.
under=(env "LD_PRELOAD=$faulty_calls" "MILLRACE_TEST_CALLS=fsync,checkpoints,0,0,1000000000,0.05")
! wanted sync || kind "a checkpoint every step, syncs of 50 ms" checkpoint-bound 60 --checkpoint.every 1 --data.reader mmap
under=()
stated=
ranks=2
! wanted sums || kind "sums of 50 ms a MB" "communication-bound: .* comm.grad_dtype" 60 --test.all_reduce_delay 0.05 --data.reader mmap --model.hidden 400 400
# Between virtual hosts, where sending a message takes time in the kernel. Between the cores of a virtual
# machine the cost of a message changes by half from one second to the next.
if wanted buckets && start_hosts 2 1gbit; then
  kind "two hosts, buckets of 1 KiB" "communication-bound: .* comm.bucket_size" 300 --comm.bucket_size 1KiB --data.train "$folder/set/train-*.h5" --data.reader mmap --model.hidden 256 256
  stop_hosts
fi
if wanted link && start_hosts 2 64mbit; then
  kind "two hosts, a real link of 64 Mbit/s (tc)" "communication-bound: .* comm.grad_dtype" 40 --data.train "$folder/set/train-*.h5" --data.reader mmap --model.hidden 400 400
  stop_hosts
fi
# slow_rank LINE: sets $under so that only rank 1 executes LINE before it starts the program.
slow_rank() {
  printf '#!/bin/bash\nif [ "${OMPI_COMM_WORLD_RANK:-0}" = 1 ]; then %s; fi\nexec "$@"\n' "$1" >slow_rank
  chmod +x slow_rank
  under=("$folder/slow_rank")
}
stated=yes
if wanted straggler; then
  slow_rank "export LD_PRELOAD=$faulty_files MILLRACE_TEST_FAULTS=train-,4096,100000000,0,1000000000,0.002"
  kind "rank 1 has a disk of 2 ms a read" imbalanced 60
fi
stated=
if wanted slow; then
  slow_rank 'exec "$@" --test.compute_delay 12ms; else set -- "$@" --test.compute_delay 4ms'
  kind "rank 1 takes three times as long for a sample" "imbalanced: .* train.balance" 40 --train.global_batch 32 --data.reader mmap
fi
ranks=1
under=()
stated=yes
! wanted healthy || kind "nothing" "nothing worth changing" 300 --data.reader mmap --model.hidden 1024 1024 --train.global_batch 64
stated=
! wanted healthy || kind "nothing, and all changes tried" "nothing worth changing" 300 --data.reader mmap --model.hidden 1024 1024 --train.global_batch 512 --run.precision bf16
echo
echo "$within of $predicted predictions within $tolerance % of what was gained, medians of $turns runs; $failures failures"
[ $((10 * within)) -ge $((9 * predicted)) ] || die "expected at least nine of ten predictions within $tolerance %, got $within of $predicted" >&2
