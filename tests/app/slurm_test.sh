#!/bin/bash
# The job scripts of jobs/ under a real Slurm with two nodes, which are namespaces of this machine. A run that is stopped,
# preempted, requeued or loses a node completes when Slurm starts it again, and its result equals that of an
# uninterrupted run bit for bit. Needs root; skipped for other users.
# Usage: slurm_test.sh MILLRACE MPIEXEC CASE
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"
[ "$(id -u)" = 0 ] || skip "starting Slurm needs root"
for program in slurmctld slurmd munged sbatch ip nsenter; do
  command -v $program >/dev/null || die "no $program (packages slurm-wlm, munge, iproute2). install them: make deps"
done
export MILLRACE=$millrace SLURMDIR=$folder/slurm NSDIR=$folder/hosts SLURM_CONF=$folder/slurm/slurm.conf
slurm=$root/tests/support/slurm/slurm.sh
at_exit bash "$slurm" down
bash "$slurm" up >up 2>&1 || die "Slurm does not start: $(tail -n 20 up)"
# A step takes at least 64 ms.
cat >run.cfg <<'CFG'
[run]
threads = 1
[data]
train = synthetic:images:rows=20000,shape=16x16x3,classes=10
workers = 1
[model]
hidden = 64
[train]
steps = 120
global_batch = 64
[checkpoint]
every = none
CFG
slow="--test.compute_delay=2ms"

# submit SCRIPT RUN SBATCH_OPTION... [-- OPTION...]: two tasks of train.slurm or a similar script; sets $job.
submit() {
  local script=$1 run=$2 before=()
  shift 2
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    before+=("$1")
    shift
  done
  [ $# -eq 0 ] || shift
  [[ "$*" == *compute_delay* ]] || set -- "$@" "$slow"
  job=$(timeout 20 sbatch --parsable -J "$run" -o %x-%j.out -t 8 -N 1 --ntasks-per-node=2 --cpus-per-task=1 "${before[@]}" \
    "$root/jobs/$script" run.cfg --run.dir "$run" "$@")
}
job_field() { timeout 5 scontrol show job "$1" -o 2>/dev/null | sed -n "s/.*\<$2=\([^ ]*\).*/\1/p"; }
job_is() { [[ $(job_field "$1" JobState) =~ ^($2)$ ]]; }
# wait_for_job JOB [STATES]
wait_for_job() { wait_seconds=${wait_seconds:-150} wait_for job_is "$1" "${2:-COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY}"; }
# expect_completed JOB RUN RESTARTS: the job ends, after so many restarts, with the result of the uninterrupted run.
expect_completed() {
  wait_for_job "$1"
  cat "$2-$1.out" >out
  expect_equal "state of $2" COMPLETED "$(job_field "$1" JobState)"
  expect_equal "restarts of $2" "$3" "$(job_field "$1" Restarts)"
  [ "$3" = 0 ] || expect_line 'resumed at step' out
  expect_same_run whole "$2"
  expect_no_file ".millrace-restarts-$1"
}
uninterrupted() { expect_exit 0 run_on 2 train -c run.cfg --run.dir whole; }

# The time limit, and the same signal from scancel: a checkpoint, the queue, and the rest of the run.
case_stops() {
  local srun mpirun
  uninterrupted
  submit train.slurm limit-srun -w n1 -t 1 --signal=USR2@45 -- --test.compute_delay=10ms
  srun=$job
  submit train-mpirun.slurm limit-mpirun -w n2 -t 1 --signal=B:USR2@45 -- --test.compute_delay=10ms
  mpirun=$job
  expect_completed "$srun" limit-srun 1
  expect_completed "$mpirun" limit-mpirun 1
  submit train.slurm signal-srun -w n1
  srun=$job
  submit train-mpirun.slurm signal-mpirun -w n2
  mpirun=$job
  wait_seconds=60 wait_for_steps signal-srun 10
  timeout 5 scancel --signal=USR2 "$srun"
  wait_seconds=60 wait_for_steps signal-mpirun 10
  timeout 5 scancel --batch --signal=USR2 "$mpirun"
  expect_completed "$srun" signal-srun 1
  expect_completed "$mpirun" signal-mpirun 1
}

# Preemption: srun passes TERM on at once; a job without steps, that of mpirun, gets it when GraceTime is over, and has KillWait
# for its checkpoint. Then scontrol requeue and a plain scancel. A cancelled job stays out of the queue, and can be
# submitted again.
case_preempted() {
  local srun mpirun
  uninterrupted
  submit preemptible.slurm preempted-srun -w n1
  srun=$job
  submit train-mpirun.slurm preempted-mpirun -w n2 -- --test.compute_delay=8ms
  mpirun=$job
  wait_seconds=60 wait_for_steps preempted-srun 10
  wait_seconds=60 wait_for_steps preempted-mpirun 10
  timeout 20 sbatch -p high -N 2 --ntasks-per-node=2 -o high.out --wrap "sleep 2"
  expect_completed "$srun" preempted-srun 1
  expect_completed "$mpirun" preempted-mpirun 1
  submit train.slurm requeued -w n1
  srun=$job
  submit train-mpirun.slurm cancelled -w n2
  mpirun=$job
  wait_seconds=60 wait_for_steps requeued 10
  timeout 5 scontrol requeue "$srun"
  wait_seconds=60 wait_for_steps cancelled 10
  timeout 5 scancel "$mpirun"
  submit train-mpirun.slurm cancelled -w n2
  expect_completed "$job" cancelled 0
  expect_equal "state of the cancelled job" CANCELLED "$(job_field "$mpirun" JobState)"
  expect_completed "$srun" requeued 1
}
# A node is lost: Slurm requeues the job. A lost daemon disturbs nothing. A job that exceeds its memory is killed, not requeued, and can be submitted again.
# srun without PMIx is refused.
case_faults() {
  local lost mode
  expect_exit 0 run_on 2 train -c run.cfg --run.dir whole
  # Slurm gives an exclusive job the (fake) GPUs of its nodes.
  submit train-multinode.slurm lost -N 2 --ntasks-per-node=1 --exclusive -- --checkpoint.every 10 --run.device cpu
  lost=$job
  wait_seconds=60 wait_for_steps lost 25
  # shellcheck disable=SC2046  # everything on the node but the process that keeps its namespaces
  kill -9 $(ip netns pids n2 | grep -vxFf "$NSDIR/n2/pid")
  wait_seconds=90 wait_for job_is "$lost" PENDING
  rm -rf "$SLURMDIR"/{spool,tmp}.n2/*  # left by PMIx; a new start of the node removes it
  bash "$root/tests/support/slurm/hosts-rsh" n2 "slurmd -N n2" </dev/null
  expect_completed "$lost" lost 1

  # The daemon alone is killed and started again: its tasks go on.
  submit train.slurm daemon -w n2
  wait_seconds=60 wait_for_steps daemon 10
  kill -9 "$(ip netns pids n2 | while read -r pid; do [ "$(cat "/proc/$pid/comm")" = slurmd ] && echo "$pid"; done)"
  bash "$root/tests/support/slurm/hosts-rsh" n2 "slurmd -N n2" </dev/null
  expect_completed "$job" daemon 0

  submit train.slurm memory -w n1 --mem=60M  # less than the two ranks need
  for mode in none pmi2; do
    timeout 60 srun -p low -w n2 -n 2 --mpi=$mode "$millrace" train -c run.cfg --run.dir none >out 2>&1 && complain "srun --mpi=$mode was accepted"
    expect_lines 1 'error: srun started 2 tasks .*srun --mpi=pmix' out
    expect_equal "lines of millrace" 1 "$(grep -vc '^srun:' out)"
  done
  wait_for_job "$job"
  expect_number "lines about the killed job" "$(grep -ciE 'oom|killed' "memory-$job.out")" ">" 0
  [[ $(job_field "$job" JobState) =~ ^(FAILED|OUT_OF_MEMORY|CANCELLED)$ ]] || complain "the job without memory: $(job_field "$job" JobState)"
  expect_equal "restarts of the job without memory" 0 "$(job_field "$job" Restarts)"
  submit train.slurm memory -w n1
  wait_for_job "$job"
  expect_same_run whole memory
}

# An array, one task of which is stopped, and the remaining scripts.
case_scripts() {
  local sweep task selftest
  printf '%s\n' '--optim.lr 0.1' '--optim.lr 0.2' '--optim.lr 0.3' >sweep.txt
  sweep=$(timeout 20 sbatch --parsable -t 8 --cpus-per-task=1 -w n1 --array=1-3 "$root/jobs/sweep-array.slurm" run.cfg sweep.txt "$slow")
  # Two tasks fit on the node. The job id of the last one is that of the array.
  selftest=$(SELFTEST_DEVICE=cpu SELFTEST_DEPTH=8 SELFTEST_BATCH=32 timeout 20 sbatch --parsable -t 8 -w n2 --gpus-per-node=0 --cpus-per-task=1 "$root/jobs/gpu-selftest.slurm")
  wait_seconds=120 wait_for_steps runs/sweep/3 10
  timeout 5 scancel --signal=USR2 "${sweep}_3"
  for task in 1 2 3; do
    wait_for_job "${sweep}_$task"
    expect_equal "task $task" COMPLETED "$(job_field "${sweep}_$task" JobState)"
    expect_equal "restarts of task $task" $((task == 3)) "$(job_field "${sweep}_$task" Restarts)"
    expect_equal "status of task $task" '"finished"' "$(summary "runs/sweep/$task" status)"
  done
  write_table 240 100 >table.csv
  expect_script "$root/jobs/pack.slurm" --x table.csv --y-name 101 --out set
  expect_file set/train-00000.h5
  expect_script "$root/jobs/diagnose.slurm" run.cfg --seconds 0.05
  # A script of `millrace job`, which starts in its own folder, and copies the data to a folder of each node.
  expect_exit 0 "$millrace" job -c run.cfg --data.train 'set/train-*.h5' --run.dir made --tasks-per-node 2 --cpus-per-task 1 --mem 500M --out job.sh
  # shellcheck disable=SC2016
  MILLRACE_CACHE='$PWD/copies' expect_script job.sh
  expect_equal "status of the run of millrace job" '"finished"' "$(summary made status)"
  expect_file copies
  wait_seconds=250 wait_for_job "$selftest"
  cat "millrace-selftest-$selftest.out" >out
  expect_equal "state of gpu-selftest" COMPLETED "$(job_field "$selftest" JobState)"
  expect_no_line FAIL out
}
# expect_script SCRIPT ARGUMENT...: two tasks on n1 that end with 0.
expect_script() {
  timeout 150 sbatch --wait -t 8 -w n1 -o script.out --ntasks-per-node=2 --cpus-per-task=1 "$@" >/dev/null || complain "$1 failed: $(tail -n 5 script.out)"
}
run_case "$3"
