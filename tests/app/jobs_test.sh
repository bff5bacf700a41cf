#!/bin/bash
# The job scripts of jobs/, with a Slurm that only records its calls: a run that was stopped early (75) is
# put back into the queue, and signals reach all ranks. gpu-selftest.slurm notices wrong losses, wrong
# options and a missing watchdog. scripts/run.sh turns Ctrl-C and SIGTERM into a clean stop.
# Usage: jobs_test.sh MILLRACE MPIEXEC
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"

# executable FILE: from stdin.
executable() {
  cat >"$1"
  chmod +x "$1"
}
mkdir bin
executable bin/srun <<'X'
#!/bin/bash
echo "srun $*" >>calls
exit "$FAKE_CODE"
X
executable bin/scontrol <<'X'
#!/bin/bash
echo "scontrol $*" >>calls
[ "$1" = requeue ] || printf '%s\n' "   JobState=${FAKE_STATE-RUNNING} PreemptTime=${FAKE_PREEMPTED-None}" "   Command=$JOBS/train.slurm a.cfg"
X
executable bin/mpirun <<'X'
#!/bin/bash
echo "mpirun $*" >>calls
[ "${FAKE_WAIT:-}" ] || exit "$FAKE_CODE"
trap 'echo "mpirun got USR2" >>calls; sleep 0.2; exit 75' USR2
echo >started
for _ in {1..200}; do sleep 0.05; done
exit 9
X
export PATH=$folder/bin:$PATH SLURM_JOB_ID=42 MILLRACE=the-program JOBS=$root/jobs MILLRACE_RETRY_SECONDS=0
unset "${!SLURM_ARRAY@}" MILLRACE_MAX_RESTARTS MILLRACE_CACHE SLURM_CPUS_PER_TASK SLURM_SUBMIT_DIR

# expect_job SCRIPT CODE yes|no: if the program exits with CODE, the script exits with CODE, too. yes|no says whether
# the job is put back into the queue.
expect_job() {
  : >calls
  FAKE_CODE=$2 expect_exit "$2" bash "$root/jobs/$1" a.cfg --train.epochs 3
  expect_lines "$([ "$3" = yes ] && echo 1 || echo 0)" '^scontrol requeue 42$' calls
}
for script in train.slurm train-mpirun.slurm train-multinode.slurm preemptible.slurm; do
  rm -f .millrace-restarts-42
  expect_job $script 75 yes
  expect_line 'the-program train -c a\.cfg --train\.epochs 3 .*--run\.resume auto' calls
  expect_exit 1 bash "$root/jobs/$script"
  expect_line 'configuration file' err
  expect_line '^#SBATCH.*--requeue' "$root/jobs/$script"
  expect_line '^#SBATCH.*--open-mode=append' "$root/jobs/$script"
done
for script in train.slurm train-mpirun.slurm; do
  rm -f .millrace-restarts-42
  for code in 0 1 2 3 4 137; do expect_job $script $code no; done
  # Restarts are counted for each code; a stop with a checkpoint ends a row of failures.
  for code in 5 5 75 5 5; do expect_job $script $code yes; done
  expect_job $script 5 no
  expect_line 'raise MILLRACE_MAX_FAILURES' err
  for _ in {1..20}; do echo 75; done >.millrace-restarts-42
  MILLRACE_MAX_RESTARTS=30 expect_job $script 75 yes
  expect_job $script 75 no
  expect_line '20 times' err
  FAKE_PREEMPTED=2026-11-25T15:14:16 expect_job $script 75 yes
  expect_no_file .millrace-restarts-42
  FAKE_STATE=COMPLETING expect_job $script 75 no
done
# Each task of an array puts only itself back.
printf '%s\n' '--optim.lr 0.1' '--optim.lr 0.2' >sweep.txt
: >calls
SLURM_ARRAY_JOB_ID=42 SLURM_ARRAY_TASK_ID=2 FAKE_CODE=75 expect_exit 75 bash "$root/jobs/sweep-array.slurm" a.cfg sweep.txt
expect_lines 1 '^scontrol requeue 42_2$' calls
expect_line 'the-program train -c a\.cfg --run\.dir runs/sweep/2 --optim\.lr 0\.2' calls
SLURM_ARRAY_TASK_ID=3 FAKE_CODE=0 expect_exit 2 bash "$root/jobs/sweep-array.slurm" a.cfg sweep.txt
expect_line 'no options in line 3' err
# GPUs of the job are used, unless a device is named, and copies of the data go where each node says.
: >calls
SLURM_GPUS_ON_NODE=4 MILLRACE_CACHE='$TMPDIR/copies' expect_job train.slurm 0 no
expect_line 'data\.cache .* the-program train .*--run\.device cuda' calls
: >calls
SLURM_GPUS_ON_NODE=4 FAKE_CODE=0 expect_exit 0 bash "$root/jobs/train.slurm" a.cfg --run.device cpu
expect_no_line 'cuda' calls
expect_job train.slurm 75 yes
expect_line 'srun --mpi=pmix ' calls
expect_line '^#SBATCH.*--signal=USR2@' "$root/jobs/train.slurm"
expect_line '^#SBATCH.*--signal=B:USR2@' "$root/jobs/train-mpirun.slurm"

# `millrace job` writes a script of the same kind, and replaces no file but its own.
printf '%s\n' '[data]' 'train = set/*.h5' '[run]' 'stop_margin = 5m' >"my net.cfg"
job() { FAKE_CODE=0 "$millrace" job -c "my net.cfg" --nodes 4 "$@"; }
expect_exit 0 job --time 8h --gpus-per-node 4 --partition gpu --module gcc openmpi --out job.sh --train.global_batch 64 --model.hidden 3 4
for line in '^#SBATCH -N 4 --ntasks-per-node=4 ' '^#SBATCH -t 0-08:00:00$' '^#SBATCH .*--signal=USR2@360$' '^#SBATCH --gpus-per-node=4$' \
  '^#SBATCH --partition=gpu$' '^module load gcc openmpi$'; do expect_lines 1 "$line" job.sh; done
sed -i 's/^module load/: &/' job.sh
: >calls
SLURM_GPUS_ON_NODE=4 FAKE_CODE=75 expect_exit 75 bash job.sh
expect_line "the-program train -c $folder/my net.cfg --train.global_batch 64 --model.hidden 3 4 --run.resume auto --run.device cuda" calls
expect_lines 1 '^scontrol requeue 42$' calls
expect_exit 3 job --out job.sh
expect_line 'overwrite' err
expect_exit 0 job --launcher mpirun --out job.sh --overwrite
expect_line '^#SBATCH .*--signal=B:USR2@360$' job.sh
expect_line '^train with_mpirun' job.sh
echo mine >mine.sh
expect_exit 3 job --out mine.sh --overwrite
expect_equal "another file" mine "$(cat mine.sh)"
expect_exit 2 job --partition 'a; rm'
expect_line 'partition' err
expect_exit 2 job --time 5m
expect_line 'too short' err
expect_exit 2 job --run.device cuda
expect_line 'gpus-per-node' err

# A signal to the batch script reaches mpirun, and the script exits with mpirun's code.
for signal in USR2 TERM; do
  : >calls
  rm -f started
  FAKE_CODE=0 FAKE_WAIT=1 start bash "$root/jobs/train-mpirun.slurm" a.cfg
  wait_for test -e started
  kill -$signal "$pid"
  expect_end 75
  expect_line 'mpirun got USR2' calls
  expect_line '^scontrol requeue 42$' calls
done

# The real mpirun passes USR2 on to each rank; so does scripts/run.sh, after SIGTERM and SIGINT.
rm bin/mpirun
ln -s "$mpiexec" bin/mpirun
executable program <<'X'
#!/bin/bash
trap 'echo >>seen; exit 75' USR2
echo >>started
for _ in {1..200}; do sleep 0.05; done
X
# expect_signalled RANKS SIGNAL: the background command passes the signal on to each rank.
expect_signalled() {
  wait_for eval "[ \"\$(cat started | wc -l)\" -ge $1 ]"
  sleep 0.4  # until mpirun handles signals
  kill -"$2" "$pid"
  expect_end 75
  expect_equal "ranks that saw the signal after SIG$2" "$(wc -l <started)" "$(cat seen | wc -l)"
  rm -f started seen
}
rm started
MILLRACE=./program start bash "$root/jobs/train-mpirun.slurm" a.cfg
expect_signalled 1 USR2
for signal in TERM INT; do
  start env --default-signal=INT "$root/scripts/run.sh" 2 ./program
  expect_signalled 2 $signal
done

# gpu-selftest.slurm passes if all runs have the same losses. It names a run with another loss, and fails
# without a watchdog.
mkdir selftest
executable selftest/millrace <<'X'
#!/bin/bash
[ -z "$(printf '%s\n' "$@" | grep '^--' | sort | uniq -d)" ] || exit 2  # as the real one
case "$*" in *10000000*) echo "error: ${FAKE_LATE-rank 1 on n2 (training, after step 3)} gave no sign of life" >&2; exit 5 ;; esac
[[ $* =~ --run.dir\ ([^ ]*) ]] || exit 0
folder=${BASH_REMATCH[1]}
mkdir -p "$folder"
loss=2.25
[ "${folder##*/}" = "${FAKE_WRONG:-}" ] && loss=2.75
for i in {1..40}; do echo "{\"step\":$i,\"loss\":$loss,\"lr\":0.1}"; done >"$folder/metrics.jsonl"
X
executable selftest/srun <<'X'
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
exec "$@"
X
selftest() { PATH=$folder/selftest:$PATH MILLRACE=$folder/selftest/millrace expect_exit "$1" bash "$root/jobs/gpu-selftest.slurm"; }
selftest 0
expect_no_line FAIL out
for name in nccl zero-lamb resumed; do
  FAKE_WRONG=$name selftest 1
  expect_line "^FAIL  $name: loss '2\.75' at step" out
done
FAKE_LATE=nobody selftest 1
FAKE_LATE='waited 10 s for all-reduce 0 (1 MiB) on the GPU (stopped or dead: rank 1 on n2' selftest 0
