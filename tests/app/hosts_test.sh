#!/bin/bash
# Training on several virtual hosts (network namespaces) over TCP: hosts with different numbers of ranks, a host that is
# cut off the network, and one that dies. The run ends in time and continues without the host.
# Usage: hosts_test.sh MILLRACE MPIEXEC uneven|cut|killed
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"
[ "$(id -u)" = 0 ] || skip "network namespaces need root"

support=$root/tests/support/slurm
export NSDIR=$folder/hosts NSNAME=mrh NSNET=10.79.0 NSBRIDGE=br-mrh
# mpirun and its daemons notice within 5 s that a host no longer answers, before comm.timeout ends: Linux does not look for a lost
# host while data to it are unanswered, and mpirun would wait for minutes for the answer to the abort of rank 0.
export OMPI_MCA_oob_tcp_keepalive_time=2 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3
at_exit bash "$support/hosts.sh" down
bash "$support/hosts.sh" up 4 100mbit 2>log || skip "$(tail -n 1 log)"
timeout=8  # comm.timeout
cat >net.cfg <<CFG
[run]
device = cpu
threads = 1
[data]
train = synthetic:images:rows=240,shape=8x8x3,classes=4
valid = synthetic:images:rows=48,shape=8x8x3,classes=4,seed=9
workers = 1
[model]
hidden = 256 256
[train]
steps = 40
global_batch = 24
[optim]
name = adamw
lr = 0.01
schedule = constant
[comm]
timeout = ${timeout}s
[checkpoint]
every = 5
CFG
slowly="--test.compute_delay 15ms"  # for each sample

# on HOSTS RUN_FOLDER OPTION...: trains on hosts like "1:2 3:1": two ranks on the first host and one on the third.
on() {
  local hosts= ranks=0 each
  for each in $1; do
    hosts+=${hosts:+,}$NSNAME$each
    ranks=$((ranks + ${each#*:}))
  done
  ${launch:-} timeout -k 5 120 "$mpiexec" --mca plm_rsh_agent "$support/hosts-rsh" --mca oob_tcp_if_include $NSNET.0/24 \
    --mca btl_tcp_if_include $NSNET.0/24 --mca pml ob1 --mca btl tcp,self --bind-to none --host "$hosts" -n $ranks \
    "$millrace" train -c net.cfg --run.dir "${@:2}"
}
pids_on() { ip netns pids "$NSNAME$1" | while read -r p; do [ "$(cat /proc/"$p"/comm 2>/dev/null)" != sleep ] && echo "$p"; done || true; }
nothing_runs_on() { [ -z "$(pids_on "$1")" ]; }
# expect_steps RUN_FOLDER: checks that each step is in the metrics once.
expect_steps() { expect_equal "steps of $1" "$(seq 40)" "$(metrics "$1" step)"; }
# expect_end_within SECONDS CODES: waits for the background command.
expect_end_within() {
  local began=$SECONDS got=0
  wait "$pid" || got=$?
  pid=
  [[ " $2 " == *" $got "* ]] || complain "the background command was expected to exit with one of $2, but exited with $got"
  expect_number "seconds until the end" $((SECONDS - began)) "<=" "$1"
}

# Four hosts with two, one, two and one ranks: an interrupted run equals an uninterrupted one. It also continues on fewer hosts.
case_uneven() {
  expect_exit 0 on "1:2 2:1 3:2 4:1" whole
  expect_equal "hosts in run.json" 4 "$(grep -o "\"host\": *\"$NSNAME.\"" whole/run.json | sort -u | wc -l)"
  start on "1:2 2:1 3:2 4:1" parts $slowly
  wait_for_steps parts 12
  touch parts/STOP
  expect_end 75
  cp -r parts fewer
  expect_exit 0 on "1:2 2:1 3:2 4:1" parts
  expect_same_run whole parts
  expect_exit 0 on "3:1 2:2" fewer
  expect_line 'resuming with different ranks'
  expect_steps fewer
}

# A short interruption of a link changes nothing. A longer one ends the run on all hosts, including the host that
# nobody can reach, and the run continues without it.
case_cut() {
  expect_exit 0 on "1:1 2:1 3:1" whole
  start on "1:1 2:1 3:1" parts $slowly
  wait_for_steps parts 8
  ip -n ${NSNAME}2 link set eth0 down
  sleep 1
  ip -n ${NSNAME}2 link set eth0 up
  expect_end 0
  expect_same_run whole parts

  start on "1:1 2:1 3:1" cut $slowly
  wait_for_steps cut 12
  ip -n ${NSNAME}2 link set eth0 down
  expect_end_within $((timeout + 5 + 15)) "5 205"  # 205: mpirun lost the daemon of the host
  expect_line "(error: .*rank 1 on|Remote daemon: .*on node) ${NSNAME}2" background  # whoever notices it first
  wait_seconds=$((timeout + 20)) wait_for nothing_runs_on 2
  for host in 1 3; do wait_for nothing_runs_on $host; done
  expect_exit 0 on "1:1 3:1" cut
  expect_line '^resumed at step'
  expect_steps cut
}

# All processes of a host are killed. The others end within seconds. The run continues without the host, or with it and
# then with equal bits.
case_killed() {
  expect_exit 0 on "1:1 2:2" whole
  start on "1:1 2:2" killed $slowly
  wait_for_steps killed 12
  # shellcheck disable=SC2046
  kill -9 $(pids_on 2)
  expect_end_within 20 "1 5 9 137 205 255"  # 205: mpirun lost the daemon of the host first
  for host in 1 2; do wait_for nothing_runs_on $host; done
  cp -r killed without
  expect_exit 0 on "1:1 2:2" killed
  expect_same_run whole killed
  expect_exit 0 on "1:1 3:1" without
  expect_steps without
}

run_case "$3"
