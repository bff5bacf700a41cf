#!/bin/bash
# The job scripts of jobs/ under a real Slurm on two virtual hosts: each is signalled in the middle of a
# run, puts itself back into the queue, and completes the run when Slurm starts it again. Skipped if Slurm
# cannot run.
# Usage: slurm_test.sh SOURCE_DIR MILLRACE
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$2" mpirun
[ "$(id -u)" = 0 ] || skip "starting Slurm needs root"
for program in slurmctld slurmd munged sbatch ip nsenter; do
  command -v $program >/dev/null || skip "no $program (packages slurm-wlm, munge, iproute2)"
done
export MILLRACE=$millrace SLURMDIR=$folder/slurm NSDIR=$folder/hosts SLURM_CONF=$folder/slurm/slurm.conf
slurm=$root/tests/support/slurm/slurm.sh
at_exit bash "$slurm" down
bash "$slurm" up || skip "Slurm does not start here"
mkdir logs
cat >run.cfg <<'X'
[data]
train = synthetic:images:rows=20000,shape=32x32x3,classes=10
[model]
hidden = 1024 1024
[train]
steps = 600
[checkpoint]
every = none
X

job_field() { timeout 5 scontrol show job "$job" -o 2>/dev/null | sed -n "s/.*\<$1=\([^ ]*\).*/\1/p"; }
job_ended() { [[ $(job_field JobState) =~ ^(COMPLETED|FAILED)$ ]]; }
# expect_continued SCRIPT SCANCEL_OPTION...: signals the job with scancel, and checks that it completes the run.
expect_continued() {
  local script=$1 run=runs/$1
  shift
  job=$(timeout 20 sbatch --parsable -p low -t 8 -N 1 --ntasks-per-node=2 --cpus-per-task=1 "$root/jobs/$script" run.cfg --run.dir "$run")
  wait_seconds=60 wait_for_steps "$run" 30
  timeout 5 scancel "$@" "$job"
  wait_seconds=120 wait_for job_ended
  cat logs/*-"$job".out >out
  expect_equal "state of $script" COMPLETED "$(job_field JobState)"
  expect_equal "restarts of $script" 1 "$(job_field Restarts)"
  expect_line 'resumed at step' out
  expect_equal "steps of $script" 600 "$(steps_of "$run")"
  expect_equal "status of the run of $script" '"finished"' "$(summary "$run" status)"
  expect_line 'samples, 2 ranks' out
}
expect_continued train.slurm --signal=USR2
expect_continued train-mpirun.slurm --batch --signal=USR2
