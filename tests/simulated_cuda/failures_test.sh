#!/bin/bash
# How failures of trainings on the simulated CUDA end, and captures that fail.
# Usage: failures_test.sh MILLRACE_SIMULATED MPIEXEC failures|windows|lost_ranks|stopped|captures
set -euo pipefail
source "$(dirname "$0")/training_lib.sh" "$1" "$2"

# ends CODE PATTERN RANKS FAULT OPTION...: a run with this fault ends with the code, and with one line that matches.
ends() {
  rm -rf broken
  MILLRACE_SIMULATED_FAULT=$4 expect_exit "$1" train "$3" broken --comm.timeout 3s "${@:5}"
  expect_lines 1 '^(\[rank .*\] )?error: '
  expect_lines 1 "error: .*$2|^$2"
}
case_failures() {
  ends 5 'rank 0 .*cudaErrorIllegalAddress.*the GPU was at step [0-9]+, ' 1 kernel:0:300
  ends 5 '.*rank 1.*cudaErrorIllegalAddress' 2 kernel:1:300
  ends 2 'free, but .* are needed \(out of memory\)' 1 malloc:0:5
  ends 2 '.rank 1 .*free, but .* are needed \(out of memory\)' 2 malloc:1:5
  ends 2 'pinned host memory \(out of memory\)' 1 host-alloc:0:3
  MILLRACE_SIMULATED_GPUS=0 expect_exit 2 train 1 none
  expect_lines 1 'run\.device: no GPU'
}
# NCCL's windows: on all ranks or on none. Without them memory is registered.
case_windows() {
  local -a few=(--train.steps 6 --optim.zero 1)
  expect_exit 0 train 2 windows "${few[@]}"
  expect_line 'NCCL [0-9.]+, 2 GPUs, symmetric windows'
  expect_exit 0 train 2 registered "${few[@]}" --cuda.nccl_windows off
  expect_line 'NCCL [0-9.]+, 2 GPUs, registered memory'
  expect_bits registered windows
  MILLRACE_SIMULATED_FAULT=nccl-old:1 expect_exit 0 train 2 old "${few[@]}"
  expect_line 'NCCL [0-9.]+, 2 GPUs, registered memory'
  MILLRACE_SIMULATED_FAULT=nccl-no-windows expect_exit 0 train 2 none "${few[@]}"
  expect_line 'NCCL [0-9.]+, 2 GPUs, registered memory'
  expect_bits none windows
  ends 5 'rank 1 .*NCCL did not register a window: unhandled cuda error. set cuda\.nccl_windows = off' 2 nccl-window:1:2
  ends 5 'NCCL did not register a window within 3 s' 2 nccl-no-windows:1
  # The number of thread blocks.
  expect_exit 0 train 2 few_blocks "${few[@]}" --cuda.nccl_max_ctas 4 --cuda.nccl_cta_policy efficiency
  expect_bits few_blocks windows
  expect_exit 0 run_on 2 bench comm --repeats 2 --run.device cuda --cuda.nccl_max_ctas 4
  expect_line 'NCCL [0-9.]+, 2 GPUs, symmetric windows'
  expect_exit 0 run_on 2 bench comm --repeats 2
  expect_no_line NCCL
  ends 2 'rank 1 .*cuda\.nccl_cta_policy: NCCL 2\.26\.2 has no policies' 2 nccl-old:1 --cuda.nccl_cta_policy efficiency
}
case_lost_ranks() {
  ends 5 'rank 1 .*NCCL did not connect all ranks: unhandled cuda error' 2 nccl-init:1
  ends 5 'waited 3 s for all-reduce 0 .* on the GPU' 2 nccl-late:1:2:100
  ends 5 '(NCCL failed|ncclAllReduce on rank 1 .*): remote process exited' 2 nccl-error:1:2  # also within a capture
  # A rank that is killed in mid-run.
  start train 2 broken --train.steps 4000 --comm.timeout 3s
  wait_for_steps broken 5
  pkill -9 -f "^$millrace train .*--run.dir broken" -n
  expect_end 137
}

# A rank that is stopped inside an all-reduce that all ranks have begun: it is named, once, also on other hosts.
case_stopped() {
  ends 5 '.*rank 1 on ' 2 nccl-stop:1:3:0.5 --cuda.graph off  # it has launched all that the others have
  ends 5 '.*rank 2 on ' 4 nccl-stop:2:5
  ends 5 '.*rank 0 on ' 3 nccl-stop:0:4
  # Inside of what norms exchange, captured and not; and a rank that comes too late to it.
  local -a norm=(--model.name layers --model.layers 'linear 16' batchnorm relu 'linear outputs' --model.sync_batch_norm on)
  ends 5 '.*rank 1 on ' 2 nccl-stop:1:12:0.5 "${norm[@]}"
  ends 5 '.*rank 1 on ' 2 nccl-stop:1:3:0.5 --cuda.graph off "${norm[@]}"
  ends 5 'waited 3 s for all-gather -5 .* on the GPU' 2 nccl-late:1:1:100 "${norm[@]}"
  export MILLRACE_TEST_RANKS_PER_HOST=2
  ends 5 '.*rank 3 on ' 4 nccl-stop:3:4
  ends 5 '.*rank 3 on ' 4 nccl-stop:3:4:0.5 --cuda.graph off
  unset MILLRACE_TEST_RANKS_PER_HOST
}

# Calls of a capture take long, so that the threads beside it have time to disturb it.
case_captures() {
  export MILLRACE_SIMULATED_CAPTURE=15000
  expect_exit 0 train 2 slow
  unset MILLRACE_SIMULATED_CAPTURE
  expect_exit 0 train 2 two
  expect_bits slow two
  # A capture that fails on one rank: no rank uses graphs from then on.
  local fault
  for fault in capture:1:1 capture:0:2 capture-launch:1:20; do
    rm -rf without
    MILLRACE_SIMULATED_FAULT=$fault expect_exit 0 train 2 without
    expect_lines 1 'warning: .*cannot be captured as a CUDA graph'
    expect_line "rank $(cut -d: -f2 <<<"$fault") .*warning: .*cannot be captured"
    expect_bits without two
    # The run says what was used.
    local reason="off: capture of .* failed on rank $(cut -d: -f2 <<<"$fault"): .*(cudaError|capture)"
    expect_line "CUDA graphs: $reason"
    expect_line "\"cuda_graph\": \"$reason" without/summary.json
    expect_exit 0 run_on 1 report without --overwrite
    expect_line "<th>CUDA graphs</th><td>$reason" without/report.html
  done
  expect_line '"cuda_graph": "on"' two/summary.json
  # Of two graphs, one without communication fails on one rank: that rank alone launches its operations one by one.
  expect_exit 0 train 2 parts --train.micro_batch 6 --cuda.graph_micro_batches 1
  expect_line '"cuda_graph": "on"' parts/summary.json
  MILLRACE_SIMULATED_FAULT=capture:1:1 expect_exit 0 train 2 part --train.micro_batch 6 --cuda.graph_micro_batches 1
  expect_lines 1 'warning: .*cannot be captured as a CUDA graph'
  expect_line '"cuda_graph": "on, but the capture of .* failed on rank 1: ' part/summary.json
  expect_bits part parts
  MILLRACE_SIMULATED_FAULT=capture:0:1 expect_exit 0 train 1 alone
  expect_lines 1 'warning: .*cannot be captured as a CUDA graph'
}


run_case "$3"
