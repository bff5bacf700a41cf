#!/bin/bash
# Compares the launches that `millrace plan --gpu` predicts with those of a captured step on the simulated CUDA.
# Usage: passes_test.sh MILLRACE_SIMULATED MPIEXEC levels|modes|attention|volumes|recurrent
set -euo pipefail
source "$(dirname "$0")/../app/lib.sh" "$1" "$2"
unset MILLRACE_SIMULATED_SEED

cat >net.cfg <<'CFG'
[run]
device = cuda
precision = fp16
[data]
train = synthetic:images:rows=256,shape=8x8x8,classes=8
[model]
name = layers
layers = conv 8 3x3 pad=same
layers = batchnorm
layers = relu
layers = conv 8 3x3 pad=same groups=8
layers = batchnorm
layers = relu
layers = maxpool 3 stride=1 pad=1
layers = conv 8 1x1
layers = batchnorm
layers = relu as=trunk
layers = conv 8 3x3 pad=same
layers = batchnorm
layers = relu
layers = conv 8 3x3 pad=same
layers = batchnorm
layers = relu
layers = conv 8 3x3 pad=same bias=on
layers = batchnorm
layers = add trunk
layers = relu as=block
layers = conv 8 3x3 pad=same
layers = batchnorm as=left
layers = conv 8 1x1 from=block
layers = batchnorm
layers = add left
layers = relu
layers = maxpool 2
layers = tanh
layers = globalpool
layers = linear 256
layers = relu
layers = linear 256
layers = gelu
layers = dropout 0.2
layers = linear outputs
[train]
global_batch = 32
[cuda]
autotune = off
[checkpoint]
every = none
CFG

# expect_passes LEVEL RANKS NAME OPTION...: the captured step of a rank contains as many kernels, copies and collectives
# as plan --gpu says. A counter marks each collective in its stream.
expect_passes() {
  local works marks='nccl|IncrementCounter'
  MILLRACE_SIMULATED_DELAY=0 MILLRACE_SIMULATED_GRAPHS=$PWD/$3.graphs expect_exit 0 train "$2" "$3" --train.steps 3 --model.fusion "$1" "${@:4}"
  works=$(grep '^0: ' "$3.graphs")
  expect_exit 0 mpi "$2" "$millrace" plan -c net.cfg --gpu h200 --json "${@:4}"
  expect_equal "the launches of $3" "$(($(grep -cvE "$marks" <<<"$works") / $2))" "$(planned "['levels'][$1]['sum']['launches']")"
  expect_equal "the collectives of $3" "$(($(grep -c nccl <<<"$works" || true) / $2))" "$(planned "['collectives']['count']")"
}
planned() { python3 -c "import json; print(json.load(open('out'))$1)"; }

case_levels() {
  local level
  for level in 0 1 2 3; do expect_passes $level 1 level$level; done
  expect_passes 1 1 fp32 --run.precision fp32
  expect_passes 1 1 persistent --cuda.persistent_norm on
  expect_passes 2 1 persistent2 --cuda.persistent_norm on
  expect_passes 2 1 bf16 --run.precision bf16 --cuda.breadcrumbs off
  expect_passes 3 1 full --train.recompute full --train.micro_batch 16
}
case_modes() {
  expect_passes 1 1 accumulated --train.micro_batch 16 --optim.name lamb --cuda.breadcrumbs on
  expect_passes 3 1 normalised --train.micro_batch 24
  expect_passes 1 1 mixed --train.mixup 0.2 --train.cutmix 1
  expect_passes 1 1 uneven --train.micro_batch 24 --optim.name lars
  expect_passes 1 2 ranks --comm.grad_dtype bf16 --optim.name adamw
  expect_passes 1 2 zero --optim.zero 1 --comm.grad_dtype bf16 --comm.bucket_size 64k
}

# Heads of 8 by cuDNN or, in float32, by kernels; heads of 12 by kernels.
case_attention() {
  sed -i 's/shape=8x8x8/shape=16x8/; /^layers =/d' net.cfg
  sed -i 's/^name = layers$/&\nlayers = linear 96 axis=last\nlayers = attention heads=4 causal dropout=0.1\nlayers = linear 96 axis=last\nlayers = attention heads=4 key_heads=2\nlayers = linear outputs/' net.cfg
  expect_passes 1 1 fp16
  expect_passes 1 1 fp32 --run.precision fp32
  expect_passes 1 1 accumulated --run.precision bf16 --train.micro_batch 16
  expect_passes 1 1 chunked --run.precision bf16 --train.micro_batch 16 --train.logits_memory 100
}

# Each step has a product and a kernel; the first one has no product. Of one step, W_hh has a gradient of zeros.
case_recurrent() {
  sed -i 's/shape=8x8x8/shape=7x8/; /^layers =/d' net.cfg
  sed -i 's/^name = layers$/&\nlayers = lstm 16 bidirectional\nlayers = gru 8 layers=2 bias=off\nlayers = slice 6 1 axis=0\nlayers = lstm 6\nlayers = linear outputs/' net.cfg
  expect_passes 1 1 fp16
  expect_passes 1 1 fp32 --run.precision fp32
  expect_passes 1 1 accumulated --run.precision bf16 --train.micro_batch 16
}

# A reshape launches nothing.
case_volumes() {
  sed -i '/^layers =/d' net.cfg
  sed -i 's/^name = layers$/&\nlayers = conv 8 3 stride=2 pad=same\nlayers = groupnorm 2\nlayers = relu\nlayers = convt 8 2 stride=2 bias=on\nlayers = instancenorm\nlayers = relu\nlayers = se 1\nlayers = channels_to_axis\nlayers = conv 8 3 bias=on\nlayers = conv 8 3 pad=same groups=8 bias=on\nlayers = axis_to_channels as=a\nlayers = conv 48 1\nlayers = add a\nlayers = convt 8 3\nlayers = convt 8 3 groups=8 bias=on\nlayers = linear outputs/' net.cfg
  expect_passes 1 1 fp16
  expect_passes 1 1 fp32 --run.precision fp32
  expect_passes 1 1 accumulated --run.precision bf16 --train.micro_batch 16
}

run_case "$3"
