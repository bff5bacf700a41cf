#!/bin/bash
# Starts a program with mpirun, and passes Ctrl-C and SIGTERM to the ranks as SIGUSR2. The run then
# finishes its step, writes a checkpoint and exits with 75. A second signal ends it at once.
#
# Without this script mpirun kills the ranks 0.9 s after such a signal. Its option for a longer time
# (odls_base_sigkill_timeout) does not help: Open MPI 4 then waits that long after each rank that exits
# with a code other than 0.
# Usage: run.sh RANKS PROGRAM ARGUMENT...
set -euo pipefail
ranks=${1:?usage: run.sh RANKS PROGRAM ARGUMENTS...}
shift
# Allows mpirun to run as root and with more ranks than cores. MPI libraries other than Open MPI ignore these.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# Open MPI 4 notices within half a minute that a host no longer answers, and then ends the run. Its default is 8 minutes.
export OMPI_MCA_oob_tcp_keepalive_time=15 OMPI_MCA_oob_tcp_keepalive_intvl=5 OMPI_MCA_oob_tcp_keepalive_probes=3
# The ranks write to mpirun, so only this script knows whether the output goes to a terminal.
if [ -t 1 ]; then export MILLRACE_TERMINAL=1; else export MILLRACE_TERMINAL=0; fi
echo "mpirun --bind-to none -n $ranks $*"
setsid mpirun --bind-to none -n "$ranks" "$@" &  # its own session: Ctrl-C reaches only this script
pid=$!
asked=0
woken=1
rc=0
stop() {
  woken=1
  asked=$((asked + 1))
  if [ $asked -eq 1 ]; then
    echo "stopping after this step, with a checkpoint. press Ctrl-C again to stop at once"
    kill -USR2 $pid 2>/dev/null || true
  else
    kill -TERM $pid 2>/dev/null || true
  fi
}
trap stop INT TERM USR2
while [ $woken -eq 1 ]; do  # a signal ends `wait` early
  woken=0
  rc=0
  wait $pid || rc=$?
done
exit $rc
