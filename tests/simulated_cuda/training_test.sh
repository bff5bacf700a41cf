#!/bin/bash
# Whole trainings on the simulated CUDA: the results of every mode.
# Usage: training_test.sh MILLRACE_SIMULATED MPIEXEC results|muon|weights|autotune|synchronised|dependent|persistent|resnet|ranks|profile|diagnose|tune|slots|seeds
set -euo pipefail
source "$(dirname "$0")/training_lib.sh" "$1" "$2"

# The results of the CPU backend, of one rank, of graphs and of calls one by one.
case_results() {
  expect_exit 0 train 1 cpu --run.device cpu
  expect_exit 0 train 1 one
  expect_close one cpu 1e-6
  expect_exit 0 train 1 eager --cuda.graph off
  expect_bits eager one
  expect_exit 0 train 1 accumulated --train.micro_batch 12
  expect_close accumulated one 1e-6
  expect_exit 0 train 2 two
  expect_close two one 1e-6
  expect_exit 0 train 2 two_eager --cuda.graph off
  expect_bits two_eager two
  expect_exit 0 train 2 zero --optim.zero 1
  expect_bits zero two
  MILLRACE_SIMULATED_GPUS=1 expect_exit 0 train 2 shared
  expect_line '2 ranks share a GPU'
  expect_close shared one 1e-6
  expect_exit 0 train 2 bf16 --run.precision bf16
  expect_close bf16 one 0.02
  expect_exit 0 train 2 bf16_zero --run.precision bf16 --optim.zero 1
  expect_bits bf16_zero bf16
  # Parameters with rates of their own, frozen ones, and averages of the weights.
  local groups=(--optim.ema 0.9 --optim.group 'fc1.* freeze=on' 'fc2.weight lr=3 weight_decay=0.1' '*.bias lr=0.25' --optim.name adamw)
  expect_exit 0 train 1 groups_cpu --run.device cpu "${groups[@]}"
  expect_exit 0 train 1 groups "${groups[@]}"
  expect_close groups groups_cpu 1e-5
  expect_exit 0 train 2 groups_two "${groups[@]}"
  expect_exit 0 train 2 groups_zero "${groups[@]}" --optim.zero 1
  expect_bits groups_zero groups_two
  # The first loss scale overflows, so that steps are skipped.
  expect_exit 0 train 1 fp16 --run.precision fp16 --train.steps 16 --optim.loss_scale 1e9
  expect_line '"skipped":true' fp16/metrics.jsonl
  expect_exit 0 train 1 fp16_eager --run.precision fp16 --train.steps 16 --optim.loss_scale 1e9 --cuda.graph off
  expect_bits fp16_eager fp16
  # Stopped in the middle, and started again on another number of ranks.
  expect_exit 0 train 2 halves --optim.zero 1 --train.steps 5
  expect_exit 0 train 2 halves --optim.zero 1 --train.steps 12
  expect_lines 1 'resumed at step 5'
  expect_bits halves two
}

# Muon: products of cuBLAS inside the optimizer.
case_muon() {
  local muon=(--optim.name muon --optim.lr 0.01)
  expect_exit 0 train 1 muon_cpu --run.device cpu "${muon[@]}"
  expect_exit 0 train 1 muon "${muon[@]}"
  expect_close muon muon_cpu 1e-4
  expect_exit 0 train 1 muon_eager "${muon[@]}" --cuda.graph off
  expect_bits muon_eager muon
  expect_exit 0 train 2 muon_two "${muon[@]}"
  expect_close muon_two muon_cpu 1e-4
  # With ZeRO one rank owns all matrices, and in a wider network each rank a part of one.
  expect_exit 0 train 2 muon_zero "${muon[@]}" --optim.zero 1
  expect_bits muon_zero muon_two
  local precision wide=("${muon[@]}" --model.hidden 96 96)
  for precision in fp32 bf16; do
    expect_exit 0 train 2 wide_$precision "${wide[@]}" --run.precision $precision
    expect_exit 0 train 2 wide_zero_$precision "${wide[@]}" --run.precision $precision --optim.zero 1
    expect_bits wide_zero_$precision wide_$precision
  done
}

# The gradient is divided by the weight of the labels, which is all-reduced in the step. The last step of an epoch has
# fewer samples.
case_weights() {
  local weights=(--model.class_weights balanced)
  expect_exit 0 train 1 cpu --run.device cpu "${weights[@]}"
  expect_exit 0 train 1 one "${weights[@]}"
  expect_close one cpu 1e-6
  expect_exit 0 train 1 eager "${weights[@]}" --cuda.graph off
  expect_bits eager one
  expect_exit 0 train 1 accumulated "${weights[@]}" --train.micro_batch 12
  expect_close accumulated one 1e-6
  expect_exit 0 train 2 two "${weights[@]}"
  expect_close two one 1e-6
  expect_exit 0 train 2 zero "${weights[@]}" --optim.zero 1
  expect_bits zero two
  expect_exit 0 train 3 three "${weights[@]}" --train.micro_batch 12
  expect_close three one 1e-6
}

# Kernels are timed once; the times and the bandwidth of the memory are kept for later runs. Without room for a copy the
# bandwidth is estimated, and that is not kept.
case_autotune() {
  small_config
  local cache=$PWD/cache/millrace few=(--run.device cuda --train.steps 3 --checkpoint.every none)
  export XDG_CACHE_HOME=$PWD/cache MILLRACE_SIMULATED_DELAY=0
  MILLRACE_SIMULATED_MEMORY=60 expect_exit 0 train 1 narrow "${few[@]}"
  expect_lines 1 'bandwidth .* is not measured \(no 128 MiB are free\)\. it is estimated'
  expect_lines 0 'copy in device memory' "$cache"/cublaslt-*.json
  expect_exit 0 train 1 timed "${few[@]}"
  expect_lines 1 'copy in device memory' "$cache"/cublaslt-*.json
  expect_line ' add workspace' "$cache"/cudnn-*.json
  cp -r "$cache" first
  expect_exit 0 train 1 known "${few[@]}"
  diff -r "$cache" first >/dev/null || expect_equal "the cache after a run that knows all plans" changed unchanged
}
# Statistics over all ranks: the losses of one rank with the whole batch, with graphs, through host memory and with unequal rows.
case_synchronised() {
  small_config
  local few=(--cuda.autotune off --run.precision fp32 --train.steps 8 --checkpoint.every none) on=(--model.sync_batch_norm on --run.device cuda)
  expect_exit 0 train 1 cpu "${few[@]}" --train.micro_batch 36 --run.device cpu
  expect_exit 0 train 2 two "${few[@]}" "${on[@]}" --train.micro_batch 18
  expect_close two cpu 1e-5
  expect_exit 0 train 2 two_eager "${few[@]}" "${on[@]}" --train.micro_batch 18 --cuda.graph off
  expect_bits two_eager two
  expect_exit 0 train 3 three "${few[@]}" "${on[@]}" --train.micro_batch 13
  expect_close three cpu 1e-5
  MILLRACE_SIMULATED_GPUS=1 expect_exit 0 train 2 shared "${few[@]}" "${on[@]}" --train.micro_batch 18
  expect_close shared cpu 1e-5
  expect_exit 0 train 2 apart "${few[@]}" --run.device cuda --train.micro_batch 18
  expect_close apart cpu 0.001 ">="
  # Three micro-batches on a rank and two on the other, in several graphs, with ZeRO and sums of convolutions.
  expect_exit 0 train 2 uneven_cpu "${few[@]}" --model.sync_batch_norm on --train.micro_batch 8 --run.device cpu
  expect_exit 0 train 2 uneven "${few[@]}" "${on[@]}" --train.micro_batch 8 --cuda.graph_micro_batches 1 --optim.zero 1 --model.fusion 2
  expect_close uneven uneven_cpu 1e-5
}
# Norms that keep their tensors on the chip.
case_persistent() {
  small_config
  local few=(--run.device cuda --cuda.autotune off --train.steps 8 --checkpoint.every none) on=(--cuda.persistent_norm on)
  expect_exit 0 train 1 usual "${few[@]}" --run.precision fp32
  expect_exit 0 train 1 persistent "${few[@]}" --run.precision fp32 "${on[@]}"
  expect_close persistent usual 1e-5
  expect_exit 0 train 1 eager "${few[@]}" --run.precision fp32 "${on[@]}" --cuda.graph off --cuda.dependent_launch on
  expect_bits eager persistent
  expect_exit 2 train 2 refused "${few[@]}" "${on[@]}"
  expect_line 'cuda.persistent_norm: .* use one rank'
}
# Kernels that may start before the one before them has ended.
case_dependent() {
  small_config
  local few=(--run.device cuda --cuda.autotune off --train.steps 8 --checkpoint.every none) on=(--cuda.dependent_launch on) seed
  expect_exit 0 train 1 usual "${few[@]}"
  for seed in 1 2 3; do
    MILLRACE_SIMULATED_SEED=$seed expect_exit 0 train 1 "graphs$seed" "${few[@]}" "${on[@]}"
    expect_bits "graphs$seed" usual
  done
  expect_exit 0 train 1 eager "${few[@]}" "${on[@]}" --cuda.graph off
  expect_bits eager usual
  expect_exit 0 train 2 usual_ranks "${few[@]}" --optim.zero 1
  expect_exit 0 train 2 ranks "${few[@]}" "${on[@]}" --optim.zero 1
  expect_bits ranks usual_ranks
}

# ResNet-18, also in 16 bits with batch norm inside convolutions, which waits for a real GPU. A rounding may turn the sign
# before a ReLU: the tolerances are at least four times the largest difference of seven seeds.
case_resnet() {
  cat >net.cfg <<'CFG'
[run]
device = cuda
[data]
train = synthetic:images:rows=500,shape=16x16x3,classes=4
[model]
name = resnet
depth = 18
[train]
global_batch = 8
micro_batch = 4
steps = 3
[optim]
lr = 0.001
loss_scale = 128
[cuda]
autotune = off
[checkpoint]
every = none
CFG
  expect_exit 0 train 1 cpu --run.device cpu
  expect_exit 0 train 1 one
  expect_close one cpu 5e-4
  expect_exit 0 train 1 fp16 --run.precision fp16 --model.fusion 2
  expect_close fp16 one 0.02
  expect_exit 0 train 2 eager --run.precision fp16 --model.fusion 2 --cuda.graph off
  expect_exit 0 train 2 two --run.precision fp16 --model.fusion 2
  expect_bits two eager
  expect_close two fp16 0.01
  expect_exit 0 train 1 normalised --run.precision fp16 --model.fusion 3
  expect_close normalised fp16 0.01
}

# Four ranks with a GPU each and on two GPUs, and unequal shares: the result of one rank.
case_ranks() {
  expect_exit 0 train 1 one
  expect_exit 0 train 4 four
  expect_close four one 1e-6
  expect_exit 0 train 4 four_zero --optim.zero 1 --cuda.graph off
  expect_bits four_zero four
  MILLRACE_SIMULATED_GPUS=2 expect_exit 0 train 4 pairs
  expect_line '2 ranks share a GPU'
  expect_close pairs one 1e-6
  # Micro-batches of 6, 6 and 4 samples on each rank, and recorded shares that change in mid-run.
  expect_exit 0 train 3 uneven --train.micro_batch 6
  expect_close uneven one 1e-6
  printf '{"step":1,"micro_batches":[7,1]}\n{"step":4,"micro_batches":[2,6]}\n{"step":8,"micro_batches":[5,3]}\n' >shares.jsonl
  expect_exit 0 train 2 shares --train.micro_batch 6 --train.balance shares.jsonl
  expect_close shares one 1e-6
  expect_exit 0 train 2 shares_eager --train.micro_batch 6 --train.balance shares.jsonl --cuda.graph off
  expect_bits shares_eager shares
  expect_exit 0 train 2 balanced --train.micro_batch 6 --train.balance auto --train.steps 30
  expect_lines 1 '"micro_batches":\[4,4\]' balanced/shares.jsonl
  expect_exit 0 train 1 longer --train.steps 30
  expect_close balanced longer 1e-5
}

# Little memory and large work left out: peak rates are measured in seconds, and mean nothing.
quick_peaks() { MILLRACE_SIMULATED_MEMORY=256 MILLRACE_SIMULATED_LARGE=skip "$@"; }

# CUPTI's records become the device part of the account; NVML's answers become its health.
case_profile() {
  local -a options=(--train.steps 26 --model.hidden 128 128 --cuda.breadcrumbs off)  # so that products take most of the time
  expect_exit 0 train 2 plain "${options[@]}"
  expect_exit 0 quick_peaks train 2 run "${options[@]}" --run.profile 4
  expect_no_line 'warning: '
  expect_bits run plain
  expect_line 'device, in 4 traced steps: busy [1-9][0-9.]* %.* computing [1-9]'
  expect_line 'exposed: communication ([0-9.]* % .* to )?[1-9]'  # only kernels of NCCL are communication
  # Each node of a graph has a record: three layers are 8 products in each of 4 steps. The roofline of an operation is
  # known from the first step, whose launches know their operation.
  expect_line ' 32 x .* [0-9]+ %  sm90_xmma_gemm$'
  expect_line 'slowest device: 1980 MHz on average .* W of 700'
  expect_line 'energy of all devices: [1-9]'
  expect_texts run/trace.json '"step 12"' '"forward"' '"bucket 0"'
}
case_diagnose() {
  expect_exit 0 quick_peaks run_on 1 diagnose -c net.cfg --seconds 0.05 --budget 1s
  expect_line '^(compute|host|launch|input|start-up)[a-z-]*: |^nothing worth'
  expect_line '^  fc2 .*cublasLt'
  expect_line '^peaks measured here: .*copies to the device [0-9.]+ GB/s'
}
case_tune() {
  expect_exit 0 run_on 2 tune -c net.cfg --seconds 0.05 --budget 20s --out tuned.cfg
  expect_line '^  train\.micro_batch .* -> '
  expect_exit 0 train 2 tuned -c tuned.cfg
  expect_exit 0 run_on 2 tune -c net.cfg --seconds 0.05 --budget 8s \
    --keep data.workers data.prefetch data.reader comm.bucket_size train.micro_batch model.fusion
  expect_line '^  cuda\.nccl_max_ctas +auto -> 16 |not tried: cuda\.nccl_max_ctas: (what it acts|its time)'  # on a busy machine
}

# Eight micro-batches a step, and copies that come late: the step takes more slots than may be in flight, so that a slot is
# filled again soon after its copy began. If it is filled before its copy is made, the losses differ.
case_slots() {
  expect_exit 0 train 1 roomy --train.steps 4 --train.micro_batch 6 --data.prefetch 64
  MILLRACE_SIMULATED_DELAY=60000 expect_exit 0 train 1 tight --train.steps 4 --train.micro_batch 6 --data.prefetch 2 --data.workers 1
  expect_bits tight roomy
}

# One result, whatever the delays and the order of a graph's nodes.
case_seeds() {
  local seed
  expect_exit 0 train 2 first --optim.zero 1 --train.micro_batch 12 --train.steps 5
  for seed in $(seq 2 100); do
    rm -rf other
    MILLRACE_SIMULATED_SEED=$seed MILLRACE_SIMULATED_DELAY=$((seed % 5 * 200)) \
      expect_exit 0 train 2 other --optim.zero 1 --train.micro_batch 12 --train.steps 5
    expect_bits other first
  done
}

run_case "$3"
