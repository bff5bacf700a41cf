#!/bin/bash
# What diagnosis_table.sh and scaling_table.sh share, besides lib.sh: a choice of rows, medians, and runs
# on virtual hosts.
# shellcheck disable=SC2154  # the variables of lib.sh

# wanted KIND: whether $only names it; an empty $only names all.
wanted() { [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $1 "* ]]; }
median() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }

export OMPI_MCA_mpi_yield_when_idle=1  # a waiting rank leaves the core to others
hosts=                                 # not empty while virtual hosts are up
# virtual_hosts NAME NETWORK BRIDGE: names them, before start_hosts.
virtual_hosts() { export NSDIR=$folder/hosts NSNAME=$1 NSNET=$2 NSBRIDGE=$3; }
# start_hosts COUNT RATE: from now on each rank runs on a host of its own, with a link of that rate.
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
# In place of lib.sh's: $first is what mpirun is started with, like nice.
first=()
mpi() {
  if [ "$hosts" ]; then
    "${first[@]}" "$root/tests/support/slurm/on-hosts" "$mpiexec" "$@"
  else
    "${first[@]}" "$mpiexec" --bind-to none -n "$@"
  fi
}
