#!/bin/bash
# The job scripts of jobs/, with a Slurm that only records its calls: a run that was stopped early (75) is
# put back into the queue, and signals reach all ranks. gpu-selftest.slurm notices wrong losses and a
# missing watchdog. scripts/run.sh turns Ctrl-C and SIGTERM into a clean stop.
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
export PATH=$folder/bin:$PATH SLURM_JOB_ID=42 MILLRACE=the-program
unset SLURM_RESTART_COUNT MILLRACE_MAX_RESTARTS SLURM_CPUS_PER_TASK

# expect_job SCRIPT CODE yes|no: if the program exits with CODE, the script exits with CODE, too. yes|no says whether
# the job is put back into the queue.
expect_job() {
  : >calls
  FAKE_CODE=$2 expect_exit "$2" bash "$root/jobs/$1" a.cfg --train.epochs 3
  expect_lines "$([ "$3" = yes ] && echo 1 || echo 0)" '^scontrol requeue 42$' calls
}
for script in train.slurm train-mpirun.slurm; do
  expect_job $script 75 yes
  expect_line 'the-program train -c a\.cfg --run\.resume auto --train\.epochs 3' calls
  for code in 0 1 2 3 4 5 137; do expect_job $script $code no; done
  export SLURM_RESTART_COUNT=19
  expect_job $script 75 yes
  export SLURM_RESTART_COUNT=20
  expect_job $script 75 no
  expect_line '20 times' err
  MILLRACE_MAX_RESTARTS=30 expect_job $script 75 yes
  unset SLURM_RESTART_COUNT
  expect_exit 1 bash "$root/jobs/$script"
  expect_line 'configuration file' err
  expect_line '^#SBATCH.*--requeue' "$root/jobs/$script"
  expect_line '^#SBATCH.*--open-mode=append' "$root/jobs/$script"
done
expect_job train.slurm 75 yes
expect_line 'srun --mpi=pmix ' calls
expect_line '^#SBATCH.*--signal=USR2@' "$root/jobs/train.slurm"
expect_line '^#SBATCH.*--signal=B:USR2@' "$root/jobs/train-mpirun.slurm"

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
case "$*" in *10000000*) echo "error: step 3: sum 1 is late: ${FAKE_LATE-late: rank 1}" >&2; exit 5 ;; esac
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
