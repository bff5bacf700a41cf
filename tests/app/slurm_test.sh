#!/bin/bash
# The job scripts of jobs/ under a real Slurm on two virtual hosts: slurm_test.sh SOURCE_DIR MILLRACE. Each script is signalled in the middle of
# a run, puts itself back into the queue, and finishes the run when Slurm starts it again. Ends with 77 and the reason where that cannot be.
set -u
source_dir=$1
export MILLRACE=$2
[ "$(id -u)" = 0 ] || { echo "skipped: a Slurm of its own needs root"; exit 77; }
for program in slurmctld slurmd munged sbatch ip nsenter; do
  command -v $program >/dev/null || { echo "skipped: no $program (packages slurm-wlm, munge, iproute2)"; exit 77; }
done
folder=$(mktemp -d /tmp/millrace-slurm-test-XXXXXX)
export SLURMDIR=$folder/slurm NSDIR=$folder/hosts SLURM_CONF=$folder/slurm/slurm.conf
trap 'bash "$source_dir/tests/support/slurm/slurm.sh" down; rm -rf "$folder"' EXIT
bash "$source_dir/tests/support/slurm/slurm.sh" up || { echo "skipped: Slurm does not start here"; exit 77; }
cd "$folder" || exit 1
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
failures=0
complain() { echo "FAILED: $*"; timeout 5 squeue; timeout 5 scontrol show job "$job"; tail -n 30 logs/*; failures=$((failures + 1)); }
lines() { cat "$1" 2>/dev/null | wc -l; }

# goes_on SCRIPT SCANCEL_OPTIONS...
goes_on() {
  local script=$1 run state
  shift
  run=runs/$script
  job=$(timeout 20 sbatch --parsable -p low -t 8 -N 1 --ntasks-per-node=2 --cpus-per-task=1 "$source_dir/jobs/$script" run.cfg --run.dir "$run") ||
    { complain "sbatch refuses $script"; return; }
  for ((i = 0; i < 600; ++i)); do [ "$(lines "$run/metrics.jsonl")" -ge 30 ] && break; sleep 0.1; done
  timeout 5 scancel "$@" "$job"
  for ((i = 0; i < 1200; ++i)); do
    state=$(timeout 5 scontrol show job "$job" -o 2>/dev/null | grep -o 'JobState=[A-Z]*')
    [ "$state" = JobState=COMPLETED ] && break
    [ "$state" = JobState=FAILED ] && break
    sleep 0.1
  done
  [ "$state" = JobState=COMPLETED ] || complain "$script ended as $state"
  timeout 5 scontrol show job "$job" -o | grep -q 'Restarts=1 ' || complain "$script was not started again once"
  grep -q "resumed at step" logs/*-"$job".out || complain "$script did not go on where it had stopped"
  [ "$(lines "$run/metrics.jsonl")" -eq 600 ] || complain "$script left $(lines "$run/metrics.jsonl") lines of metrics, not 600"
  grep -q '"status": *"finished"' "$run/summary.json" || complain "$script did not finish its run"
  grep -q "samples, 2 ranks" logs/*-"$job".out || complain "$script did not run on two ranks"
}

goes_on train.slurm --signal=USR2
goes_on train-mpirun.slurm --batch --signal=USR2
[ $failures -eq 0 ]
