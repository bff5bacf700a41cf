#!/bin/bash
# Trains a small language model on the simulated CUDA.
# Usage: language_test.sh MILLRACE_SIMULATED MPIEXEC gpt
set -euo pipefail
source "$(dirname "$0")/training_lib.sh" "$1" "$2"

# A small GPT, with grouped queries in the second block: kernels in float32, cuDNN's fused attention in 16 bits.
case_gpt() {
  awk 'BEGIN { srand(1); split("the cat sat on a mat and far dogs ran", w); for (i = 0; i < 3000; ++i) printf "%s ", w[int(10 * rand()) + 1] }' >text.txt
  expect_exit 0 "$millrace" pack --x text.txt --tokens uint8 --context 63 --out text
  cat >net.cfg <<'CFG'
[run]
device = cuda
[data]
train = text/train-*.h5
sample = tokens
token_labels = every
window = 24
stride = 24
vocabulary = 128
[model]
name = layers
layers = documents separator=32 as=words
layers = embedding 32 std=0.2 from=input as=wte
layers = positions std=0.2
layers = residual {
layers =   layernorm
layers =   linear 96 axis=last std=0.2
layers =   attention heads=4 causal documents=words
layers =   linear 32 axis=last std=0.2
layers = }
layers = residual {
layers =   rmsnorm
layers =   linear 64 axis=last std=0.2
layers =   attention heads=4 key_heads=2 causal
layers =   linear 32 axis=last std=0.2
layers = }
layers = layernorm
layers = linear outputs axis=last bias=off weights=wte
[train]
global_batch = 16
steps = 4
[optim]
name = adamw
lr = 0.002
schedule = constant
[cuda]
autotune = off
[checkpoint]
every = none
CFG
  local precision
  expect_exit 0 train 1 cpu --run.device cpu
  expect_exit 0 train 1 one
  expect_close one cpu 1e-5
  for precision in bf16 fp16; do
    expect_exit 0 train 1 cpu_$precision --run.device cpu --run.precision $precision
    expect_exit 0 train 1 $precision --run.precision $precision
    expect_close $precision cpu_$precision 0.005
  done
  expect_exit 0 train 1 eager --run.precision bf16 --cuda.graph off
  expect_bits eager bf16
  expect_exit 0 train 2 two --optim.zero 1 --run.precision bf16
  expect_close two bf16 0.005
  # Recomputed results have the same bits. Chunks of the logits add the gradients of the weights in another order.
  expect_exit 0 train 1 recomputed --run.precision bf16 --train.recompute full
  expect_bits recomputed bf16
  expect_exit 0 train 1 chunked --run.precision bf16 --train.logits_memory 32k
  expect_close chunked bf16 0.005
  expect_exit 0 run_on 1 plan -c net.cfg --run.precision bf16 --train.logits_memory 32k
  expect_lines 1 ' linear_loss .* 4 chunks of '
  expect_exit 0 run_on 1 plan -c net.cfg --run.precision bf16
  expect_lines 2 ' attention .* cudnn eng[0-9]+, backward eng[0-9]+$'
  expect_exit 0 run_on 1 plan -c net.cfg
  expect_lines 2 ' attention .* kernels$'
  # Both graphs of the gradients are timed where results may differ from run to run.
  export XDG_CACHE_HOME=$PWD/cache
  MILLRACE_SIMULATED_DELAY=0 expect_exit 0 train 1 timed --run.precision bf16 --cuda.autotune on --run.deterministic off --train.steps 2
  expect_line 'attention backward bf16 .* causal workspace [0-9]+"' cache/millrace/cudnn-*.json
  expect_line 'attention backward bf16 .* causal accumulate workspace' cache/millrace/cudnn-*.json
  dropout
}

# Kernels drop the probabilities that the processor drops. cuDNN draws others, the same for the same micro-batches.
dropout() {
  local sixteen=(--run.precision bf16 --train.micro_batch 8 --train.steps 2)
  sed -i '/attention/s/$/ dropout=0.3/' net.cfg
  expect_exit 0 train 1 cpu_drop --run.device cpu --train.steps 2
  expect_exit 0 train 1 drop --train.steps 2
  expect_close drop cpu_drop 1e-5
  expect_exit 0 train 1 drop16 "${sixteen[@]}"
  expect_number "how much the last losses with and without dropout differ" \
    "$(paste <(metrics drop16 loss) <(metrics bf16 loss | head -n 2) | awk '{ d = ($1 - $2) / $2 } END { print d < 0 ? -d : d }')" ">=" 0.001
  expect_exit 0 train 1 drop_again "${sixteen[@]}" --cuda.graph off --train.recompute full
  expect_bits drop_again drop16
  expect_exit 0 train 2 drop_two "${sixteen[@]}"
  expect_close drop_two drop16 0.0005
}

run_case "$3"
