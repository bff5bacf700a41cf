#!/bin/bash
# Trains a small language model and networks of other kinds on the simulated CUDA.
# Usage: networks_test.sh MILLRACE_SIMULATED MPIEXEC gpt|generate|networks|heads|predict|recurrent
set -euo pipefail
source "$(dirname "$0")/training_lib.sh" "$1" "$2"

# pack_words COUNT OPTION...: a folder `text` with random words.
pack_words() {
  awk -v count="$1" 'BEGIN { srand(1); split("the cat sat on a mat and far dogs ran", w); for (i = 0; i < count; ++i) printf "%s ", w[int(10 * rand()) + 1] }' >text.txt
  expect_exit 0 "$millrace" pack --x text.txt "${@:2}" --out text
}

# compare_with_cpu RATE: trains the network of net.cfg with AdamW on the simulated CUDA and on the processor, in each
# precision; single launches give equal bits.
compare_with_cpu() {
  printf '[optim]\nname = adamw\nlr = %s\nschedule = constant\n[cuda]\nautotune = off\n[checkpoint]\nevery = none\n' "$1" >>net.cfg
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
}

# A small GPT, with grouped queries in the second block: kernels in float32, cuDNN's fused attention in 16 bits.
case_gpt() {
  pack_words 3000 --tokens uint8 --context 63
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
CFG
  compare_with_cpu 0.002
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

# LSTM and GRU, with units that are and that are not a multiple of a pack.
case_recurrent() {
  pack_words 1000 --tokens uint8 --context 31
  cat >net.cfg <<'CFG'
[run]
device = cuda
[data]
train = text/train-*.h5
sample = tokens
token_labels = every
window = 12
stride = 12
vocabulary = 128
[model]
name = layers
layers = embedding 16
layers = lstm 12 layers=2 bidirectional
layers = gru 7 bidirectional bias=off
layers = gru 8
layers = linear outputs axis=last
[train]
global_batch = 14
steps = 4
CFG
  compare_with_cpu 0.01
  expect_exit 0 train 2 two --optim.zero 1
  expect_close two one 1e-5
  expect_exit 0 train 1 accumulated --train.micro_batch 7 --train.recompute full
  expect_close accumulated one 1e-5
  expect_exit 0 run_on 1 plan -c net.cfg
  expect_lines 4 ' lstm .* gates by a kernel'
  expect_lines 3 ' gru .* gates by a kernel'
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

# Inputs and losses by lines: the losses of the processor, also in 16 bits, in graphs and on two ranks.
case_heads() {
  cat >net.cfg <<'CFG'
[run]
device = cuda
[data]
train = set/train-*.h5
valid = set/train-*.h5
y = y, x
[model]
name = layers
layers = input x
layers = linear 24
layers = gelu as=first
layers = linear 4
layers = loss cross_entropy y=y weight=0.3 as=early
layers = linear 32 from=first
layers = loss smooth_l1 y=x weight=0.01 as=copy
layers = input x as=again
layers = concat first
layers = linear 4
layers = loss cross_entropy y=y as=late
[train]
global_batch = 48
steps = 12
[optim]
lr = 0.02
schedule = constant
[cuda]
autotune = off
[checkpoint]
every = none
CFG
  local key precision
  expect_exit 0 train 1 cpu --run.device cpu
  expect_exit 0 train 1 one
  for key in loss loss.early loss.copy loss.late; do
    expect_close one cpu 1e-5 "<=" $key
  done
  for key in accuracy.early accuracy.late; do
    expect_equal "$key of one" "$(last_valid cpu $key)" "$(last_valid one $key)"
  done
  expect_exit 0 train 1 eager --cuda.graph off
  expect_bits eager one
  expect_exit 0 train 2 two --optim.zero 1
  expect_close two one 1e-6
  for precision in bf16 fp16; do
    expect_exit 0 train 1 $precision --run.precision $precision
    expect_close $precision one 0.02
  done
}

# A small Llama writes the same text on both devices, with a cache and beyond its window of 24 tokens.
case_generate() {
  pack_words 3000 --tokenizer bytes --context 63
  local -a of=(--run.device cpu --data.train 'text/train-*.h5' --data.sample tokens --data.token_labels every
    --data.window 24 --data.stride 24 --model.name llama --model.blocks 2 --model.width 32 --model.heads 4
    --model.key_heads 2 --train.steps 60 --train.global_batch 16 --optim.name adamw --optim.lr 0.01)
  expect_exit 0 train 1 llama "${of[@]}" --checkpoint.every 60
  local device precision
  for precision in fp32 bf16 fp16; do
    for device in cpu cuda; do
      expect_exit 0 "$millrace" generate llama --run.device $device --run.precision $precision --prompt 'the ' --tokens 30 --temperature 0
      expect_no_line 'no key-value cache' err
      mv out $device
    done
    # Of 16 bits, two logits may be equal on one device alone.
    if [ $precision = fp32 ]; then expect_same_files cuda cpu; else expect_line '^the [a-z ]* [a-z]* ' cuda; fi
  done
}

# Convolutions, batch norm, a shortcut, dropout, cropped images, three micro-batches a step, and evaluation.
case_networks() {
  small_config
  local on_gpu=(--run.device cuda --cuda.autotune off) few=(--train.steps 8 --checkpoint.every none)
  expect_exit 0 train 1 cpu "${few[@]}" --run.precision fp32 --run.device cpu
  expect_exit 0 train 1 one "${few[@]}" --run.precision fp32 "${on_gpu[@]}"
  expect_close one cpu 1e-5
  expect_equal "the validation of one" "$(top1 cpu)" "$(top1 one)"
  local depthwise=("${few[@]}" --run.precision fp32 --model.layers 'conv 12 3 pad=same' 'conv 12 7 pad=same groups=12 bias=on'
    relu 'conv 12 3 stride=2 groups=12' gelu globalpool 'linear outputs')
  expect_exit 0 train 1 depthwise_cpu "${depthwise[@]}" --run.device cpu
  expect_exit 0 train 1 depthwise "${depthwise[@]}" "${on_gpu[@]}"
  expect_close depthwise depthwise_cpu 1e-5
  expect_exit 0 train 2 depthwise_two "${depthwise[@]}" "${on_gpu[@]}" --model.fusion 2
  expect_close depthwise_two depthwise_cpu 1e-5
  # Evaluations between the steps of an epoch change nothing else, also with a step in flight.
  expect_exit 0 train 1 evaluated "${few[@]}" --run.precision fp32 "${on_gpu[@]}" --train.evaluate_every 3
  expect_bits evaluated one
  expect_equal "the evaluations" "$(wc -l <evaluated/validation.jsonl)" 3
  expect_equal "the validation of evaluated" "$(top1 one)" "$(top1 evaluated)"
  # The evaluations use averages of the weights; the training does not.
  expect_exit 0 train 1 averaged_cpu "${few[@]}" --run.precision fp32 --run.device cpu --optim.ema 0.5
  expect_exit 0 train 1 averaged "${few[@]}" --run.precision fp32 "${on_gpu[@]}" --optim.ema 0.5
  expect_bits averaged one
  expect_equal "the validation of averaged" "$(top1 averaged_cpu)" "$(top1 averaged)"
  # A learning rate of 0: the second and third evaluation are not better than the first.
  expect_exit 0 train 1 stuck "${few[@]}" --run.precision fp32 "${on_gpu[@]}" --train.evaluate_every 2 \
    --train.patience 2 --optim.lr 0 --model.layers 'globalpool' 'linear outputs'
  expect_lines 1 'ended at step 6 of 8: the validation loss has not improved for 2 evaluations'
  expect_exit 0 train 1 fp16 "${few[@]}" "${on_gpu[@]}"
  expect_close fp16 one 0.05
  # Mixed samples: their shares follow from the epoch in the state of the step, also in graphs.
  local mix=(--run.precision fp32 --train.mixup 0.2 --train.cutmix 1)
  expect_exit 0 train 1 blended_cpu "${few[@]}" "${mix[@]}" --run.device cpu
  expect_exit 0 train 1 blended "${few[@]}" "${mix[@]}" "${on_gpu[@]}"
  expect_close blended blended_cpu 1e-5
  expect_equal "the validation of blended" "$(top1 blended_cpu)" "$(top1 blended)"
  expect_exit 0 train 1 blended_eager "${few[@]}" "${mix[@]}" "${on_gpu[@]}" --cuda.graph off
  expect_bits blended_eager blended
  # A norm that the convolution behind it applies, captured and launched one by one.
  sed -i 's/^layers = relu as=trunk$/&\nlayers = conv 8 3x3 pad=same\nlayers = batchnorm\nlayers = relu/' net.cfg
  expect_exit 0 train 1 stored "${few[@]}" "${on_gpu[@]}" --model.fusion 2
  expect_exit 0 train 1 normalised "${few[@]}" "${on_gpu[@]}" --model.fusion 3
  expect_close normalised stored 0.02
  expect_exit 0 train 1 normalised_eager "${few[@]}" "${on_gpu[@]}" --model.fusion 3 --cuda.graph off
  expect_bits normalised_eager normalised
  expect_exit 0 run_on 1 plan -c net.cfg "${on_gpu[@]}" --model.fusion 3
  expect_lines 1 'cudnn .* after norm and relu .*backward weights .* after norm and relu'
  # From level 1, the norms of projections and the pool are merged into other norms. A run may go on at another level.
  on_gpu+=(--run.precision fp32 --optim.schedule constant --train.global_batch 12)
  on_gpu+=(--model.name resnet --model.depth 8 --model.width 8 --model.stem pool)
  few=(--train.steps 6 --checkpoint.every none)
  expect_exit 0 train 1 plain "${few[@]}" "${on_gpu[@]}" --model.fusion 0
  expect_exit 0 train 1 merged "${few[@]}" "${on_gpu[@]}" --model.fusion 1
  expect_close merged plain 1e-5
  expect_equal "the validation of merged" "$(top1 plain)" "$(top1 merged)"
  local level steps=0
  for level in 1 0 1; do
    expect_exit 0 train 1 mixed "${on_gpu[@]}" --model.fusion $level --train.steps $((steps += 2)) --checkpoint.every 2
  done
  expect_lines 1 'resumed at step 4'
  expect_close mixed plain 1e-5
}

# Predictions are those of the CPU, from captured forward passes, of 32 and of 16 bits, on two ranks.
case_predict() {
  small_config
  expect_exit 0 train 1 run --train.steps 12 --run.precision fp32 --run.device cpu
  set -- predict run --data synthetic:images:rows=101,shape=10x10x3,classes=4,seed=9 --train.micro_batch 9 --cuda.autotune off
  expect_exit 0 run_on 1 "$@" --run.device cpu --output cpu.csv
  expect_exit 0 run_on 1 "$@" --run.device cuda --output cuda.csv
  expect_exit 0 run_on 2 "$@" --run.device cuda --output two.csv
  expect_exit 0 run_on 1 "$@" --run.device cuda --output bf16.csv --run.precision bf16
  local of limit
  for of in cuda:1e-4 two:1e-4 bf16:0.05; do
    limit=${of#*:}
    of=${of%:*}
    expect_equal "rows of $of" 102 "$(wc -l <$of.csv)"
    expect_number "largest difference of a probability, $of" "$(paste -d , cpu.csv $of.csv | awk -F, 'NR > 1 {
        for (i = 3; i <= NF / 2; ++i) { d = $i - $(i + NF / 2); if (d < 0) d = -d; if (d > most) most = d } }
      END { print NF == 12 ? most + 0 : 9 }')" "<" "$limit"
  done
}

run_case "$3"
