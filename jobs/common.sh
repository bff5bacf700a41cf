#!/bin/bash
# Functions and settings that the job scripts share. `millrace job` writes a copy into each of its scripts.
# shellcheck disable=SC1090
source "${MILLRACE_SITE:-$(dirname "${BASH_SOURCE[0]}")/site.sh}"
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}  # since Slurm 22.05 srun does not inherit it
export HDF5_USE_FILE_LOCKING=FALSE                   # parallel file systems may have no locks
export MILLRACE=${MILLRACE:-build/millrace}
# In an array, SLURM_JOB_ID of the last task is the id of the whole array.
job_id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID:-}}
job_id=${job_id:-${SLURM_JOB_ID:-}}

# unless_given OPTION VALUE ARGUMENT...: prints both on lines of their own, unless the arguments contain the option.
unless_given() {
  local option=$1 value=$2
  shift 2
  [[ " $* " == *" $option"[\ =]* ]] || printf '%s\n' "$option" "$value"
}

# supervise COMMAND...: runs the command to its end and sets rc. A USR2 or TERM to this script becomes a USR2 to the
# command, which then stops with a checkpoint.
supervise() {
  local pid woken=1
  "$@" &
  pid=$!
  trap 'woken=1; kill -USR2 $pid 2>/dev/null || true' USR2 TERM
  while [ $woken -eq 1 ]; do  # a signal ends `wait` early
    woken=0
    rc=0
    wait $pid || rc=$?
  done
}

# with_srun COMMAND..., with_mpirun COMMAND...: run it on all tasks of the job, and set rc.
with_srun() { supervise srun --mpi=pmix --kill-on-bad-exit=1 -u "${on_node[@]}" "$@"; }
with_mpirun() {
  # Slurm also sends TERM to mpirun, which would kill the ranks 0.9 s later.
  local block=()
  if env --block-signal=TERM true 2>/dev/null; then block=(env --block-signal=TERM); fi
  supervise "${block[@]}" mpirun --bind-to none "${on_node[@]}" "$@"
}
on_node=()
if [ "${MILLRACE_CACHE:-}" ]; then
  # shellcheck disable=SC2016  # each node expands MILLRACE_CACHE
  on_node=(bash -c 'eval "cache=\"$MILLRACE_CACHE\""; exec "$@" --data.cache "$cache"' -)
fi

# train WITH ARGUMENT...: trains, or resumes, with with_srun or with_mpirun. In a job with GPUs, a rank that finds none
# is refused, unless the arguments name a device.
train() {
  local with=$1 more
  shift
  mapfile -t more < <(
    unless_given --run.resume auto "$@"
    [ "${SLURM_GPUS_ON_NODE:-0}" = 0 ] || unless_given --run.device cuda "$@"
  )
  $with "$MILLRACE" train "$@" "${more[@]}"
}

# requeue_or_exit: puts the job back into the queue if the run stopped early with a checkpoint (75), at most
# MILLRACE_MAX_RESTARTS times, or if communication failed (5), at most MILLRACE_MAX_FAILURES times in a row.
# Preemptions do not count. A cancelled job is no longer RUNNING, and stays out of the queue.
requeue_or_exit() {
  local note=${SLURM_SUBMIT_DIR:-.}/.millrace-restarts-$job_id limit key=MILLRACE_MAX_RESTARTS count job
  case $rc in
  75) limit=${MILLRACE_MAX_RESTARTS:-20} ;;
  5) key=MILLRACE_MAX_FAILURES limit=${MILLRACE_MAX_FAILURES:-2} ;;
  *) limit= ;;
  esac
  job=$(scontrol show job -o "$job_id" 2>/dev/null) || true
  if [ -z "$limit" ] || [[ $job == *JobState=* && $job != *JobState=RUNNING* ]]; then
    rm -f "$note"
    exit "$rc"
  fi
  [ "$rc" = 5 ] || sed -i '/^5$/d' "$note" 2>/dev/null || true
  count=$(grep -cx "$rc" "$note" 2>/dev/null) || true
  if [ "${count:-0}" -ge "$limit" ]; then
    echo "not restarted: the run ended $limit times with code $rc. raise $key for more" >&2
    rm -f "$note"
    exit "$rc"
  fi
  [[ $job == *PreemptTime=[0-9]* ]] || echo "$rc" >>"$note" || true
  for _ in 1 2 3; do
    if scontrol requeue "$job_id"; then break; fi
    sleep "${MILLRACE_RETRY_SECONDS:-20}"  # the controller may be restarting
  done
  exit "$rc"
}
