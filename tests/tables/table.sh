#!/bin/bash
# Functions that diagnosis_table.sh and scaling_table.sh share, in addition to lib.sh: a choice of rows,
# medians, and runs on virtual hosts.
# shellcheck disable=SC2154  # the variables of lib.sh

# wanted KIND: whether $only contains KIND or is empty.
wanted() { [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $1 "* ]]; }
median() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }

export OMPI_MCA_mpi_yield_when_idle=1  # a waiting rank leaves the core to others
hosts=                                 # not empty while virtual hosts are up
# virtual_hosts NAME NETWORK BRIDGE: sets the names that start_hosts uses.
virtual_hosts() { export NSDIR=$folder/hosts NSNAME=$1 NSNET=$2 NSBRIDGE=$3; }
# start_hosts COUNT RATE: from now on each rank runs on its own virtual host, with a link of that rate.
start_hosts() {
  if bash "$root/tests/support/slurm/hosts.sh" up "$1" "$2" 2>log; then
    at_exit bash "$root/tests/support/slurm/hosts.sh" down
    hosts=yes
  else
    echo "skipped: $(tail -n 1 log)" >&2
    return 1
  fi
}
stop_hosts() {
  hosts=
  bash "$root/tests/support/slurm/hosts.sh" down
}
# Replaces the function of lib.sh. $first is a command that starts mpirun, such as nice.
first=()
mpi() {
  if [ "$hosts" ]; then
    "${first[@]}" "$root/tests/support/slurm/on-hosts" "$mpiexec" "$@"
  else
    "${first[@]}" "$mpiexec" --bind-to none -n "$@"
  fi
}
