#!/bin/bash
# run.sh RANKS PROGRAM ARGUMENTS...: mpirun, with Ctrl-C and SIGTERM handed on to the ranks as SIGUSR2, so that a run finishes its step, writes a
# checkpoint and ends with 75; a second one ends it at once. mpirun by itself kills the ranks 0.9 s after either, and its longer time-out
# (odls_base_sigkill_timeout) is no way out: Open MPI 4 then waits that long after every rank that ends with another code than 0.
set -u
ranks=${1:?usage: run.sh RANKS PROGRAM ARGUMENTS...}
shift
# As root and with more ranks than cores too. Under other MPIs than Open MPI these do nothing.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# The ranks' output goes through mpirun: only this script knows whether somebody watches it.
if [ -t 1 ]; then export MILLRACE_TERMINAL=1; else export MILLRACE_TERMINAL=0; fi
echo "mpirun --bind-to none -n $ranks $*"
setsid mpirun --bind-to none -n "$ranks" "$@" &  # a session of its own: the terminal's Ctrl-C comes here alone
pid=$!
asked=0 woken=1 rc=0
stop() {
  woken=1
  asked=$((asked + 1))
  if [ $asked -eq 1 ]; then
    echo "stopping after this step, with a checkpoint; once more ends at once"
    kill -USR2 $pid 2>/dev/null
  else
    kill -TERM $pid 2>/dev/null
  fi
}
trap stop INT TERM USR2
while [ $woken -eq 1 ]; do  # a trap ends wait early
  woken=0
  wait $pid
  rc=$?
done
exit $rc
