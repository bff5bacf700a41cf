#!/bin/bash
# Tests and measures everything that needs a GPU, in at most 8 minutes (GPU_CHECK_SECONDS): runs the tests
# with the label gpu, trains a small network on the GPU and on the CPU and compares the losses, runs the
# benchmarks, and prints a short table. The logs stay in the log folder. What does not fit into the time is
# listed as skipped. GPU_CHECK_DEVICE=cpu tests the script itself without a GPU.
# Usage: gpu-check.sh [BUILD_FOLDER] [LOG_FOLDER]
set -euo pipefail
build=${1:-build}
logs=${2:-$build/gpu-check}
budget=${GPU_CHECK_SECONDS:-460}
device=${GPU_CHECK_DEVICE:-cuda}
mkdir -p "$logs"
rm -f "$logs"/*.log
millrace=$build/millrace
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
launch=${MILLRACE_LAUNCH:-mpirun --bind-to none -n}  # followed by the number of ranks
table=()
failed=0
passed=no
# try NAME SECONDS COMMAND...: adds a line to the table, and sets $passed.
try() {
  local name=$1 limit=$2 began=$SECONDS left=$((budget - SECONDS)) code=0
  shift 2
  passed=no
  if [ $left -lt 5 ]; then
    table+=("skip  $name (no time left)")
    return
  fi
  # -k sends KILL 5 s after TERM: on TERM millrace stops after the current step, which may never end.
  timeout -k 5 $((left < limit ? left : limit)) "$@" >"$logs/$name.log" 2>&1 || code=$?
  if { [ $code -eq 124 ] || [ $code -eq 137 ] || [ $code -eq 75 ]; } && [ $left -lt "$limit" ]; then
    table+=("skip  $name (cut off: no time left)")
    rm -rf "$logs/$name.log" "${logs:?}/$name"
    return
  fi
  case $code in
  0)
    passed=yes
    table+=("ok    $name ($((SECONDS - began)) s)")
    ;;
  77) table+=("skip  $name: $(sed -n 's/^skipped: //p' "$logs/$name.log")") ;;
  *)
    table+=("FAIL  $name (exit $code, $((SECONDS - began)) s): $(grep -m 1 '^error' "$logs/$name.log" || grep -v '^---*$' "$logs/$name.log" | tail -n 1)") || true
    failed=1
    ;;
  esac
}
# loss RUN STEP: prints the loss.
loss() { sed -n "$2p" "$logs/$1/metrics.jsonl" 2>/dev/null | sed 's/.*"loss":\([^,]*\),.*/\1/'; }
# near RUN STEP TOLERANCE: compares the loss with that of the run on the CPU. The tolerance is relative.
near() {
  [ -e "$logs/$1.log" ] || return 0
  awk -v a="$(loss train-cpu "$2")" -v b="$(loss "$1" "$2")" -v t="$3" 'BEGIN { d = a - b; exit !(a != "" && b != "" && b != "null" && d * d <= t * t * a * a) }' && return
  table+=("FAIL  $1: loss '$(loss "$1" "$2")' at step $2, '$(loss train-cpu "$2")' on the CPU")
  failed=1
}
# figure NAME PATTERN: prints the largest number in the log that the group of the pattern matches.
figure() { sed -n "s|.*$2.*|\\1|p" "$logs/$1.log" 2>/dev/null | sort -g | tail -n 1 || true; }
# ratio NAME A B GOAL: prints A / B and the goal, or "not measured" if one of them is missing.
ratio() {
  awk -v n="$1" -v a="$2" -v b="$3" -v g="$4" 'BEGIN {
    if (a == "" || b == "" || b == 0) printf "  %-44s not measured (goal %s)\n", n, g
    else printf "  %-44s %.2f (goal %s)%s\n", n, a / b, g, a / b < g ? ", missed" : "" }'
}
ratios() {
  local ours eager compiled batch
  ours=$(figure bench-gpu 'a rank, \([0-9]*\) images/s')
  eager=$(figure peers 'eager, batch [0-9]*, AMP: \([0-9.]*\) images/s')
  compiled=$(figure peers 'torch.compile, batch [0-9]*, AMP: \([0-9.]*\) images/s')
  echo "compared with the goals for an H200:"
  ratio "ResNet-50 fp16, images/s" "$ours" 1 6500
  ratio "ResNet-50 fp16 over PyTorch eager" "$ours" "$eager" 1.9
  ratio "ResNet-50 fp16 over torch.compile" "$ours" "$compiled" 1.8
  local step='complete step with all-reduce and optimizer: \([0-9.]*\) ms'
  ratio "batch 8, speed with a graph over eager" "$(figure step-8-graph-off "$step")" "$(figure step-8-graph-on "$step")" 1.15
  ratio "batch 32, speed eager over with a graph" "$(figure step-32-graph-on "$step")" "$(figure step-32-graph-off "$step")" 0.9
  for batch in 8 32; do
    ratio "batch $batch, speed with dependent launches" "$(figure step-$batch-graph-on "$step")" "$(figure step-$batch-dependent_launch "$step")" 1.02
    ratio "batch $batch, speed with persistent norms" "$(figure step-$batch-graph-on "$step")" "$(figure step-$batch-persistent_norm "$step")" 1.02
  done
  ratio "GPU busy, synthetic data, %" "$(figure busy-synthetic 'traced steps: busy \([0-9.]*\) %')" 1 99
  ratio "GPU busy, packed shards, %" "$(figure busy-shards 'traced steps: busy \([0-9.]*\) %')" 1 98
}
# prediction NAME MEASURED OPTION...: a line with the step time that `millrace plan` predicts, the measured one in ms, and
# their ratio.
prediction() {
  local name=$1 measured=$2 predicted log=$logs/plan-$1.log
  shift 2
  # shellcheck disable=SC2086
  timeout 20 $launch 1 "$millrace" plan -c /dev/null "$@" --gpu "$gpu" >"$log" 2>&1 || true
  predicted=$(sed -n 's/^ *predicted: \([0-9.]*\) \(us\|ms\|s\) per step.*/\1 \2/p' "$log")
  awk -v n="$name" -v m="$measured" -v p="$predicted" 'BEGIN {
    split(p, part, " "); ms = part[1] * (part[2] == "us" ? 1e-3 : part[2] == "s" ? 1e3 : 1)
    if (ms == 0) printf "  %-28s %10s %10s %7s  no prediction, see plan-%s.log\n", n, "", m, "", n
    else if (m == "") printf "  %-28s %10.3f %10s %7s  not measured\n", n, ms, "", ""
    else {
      verdict = "as predicted"
      if (m > 1.25 * ms) verdict = "slower than predicted: find out why"
      if (m < 0.8 * ms) verdict = "faster than predicted: correct the model"
      printf "  %-28s %10.3f %10.3f %7.2f  %s\n", n, ms, m, m / ms, verdict
    }
  }'
}
# The same steps as the benchmarks above. docs/explanation/gpu-step-time.md explains the model.
predictions() {
  local gpu batch images level step='complete step with all-reduce and optimizer: \([0-9.]*\) ms'
  gpu=${GPU_CHECK_GPU:-$(grep -o -i -m 1 -E 'a100|b200|h100|h200' "$logs/inspect.log" 2>/dev/null | head -n 1 | tr '[:upper:]' '[:lower:]')}
  if [ -z "$gpu" ]; then
    echo "step times predicted for this GPU: none, the model knows the A100, B200, H100 and H200"
    return
  fi
  printf '%-30s %10s %10s %7s\n' "ms a step (model: ${gpu^^})" predicted measured ratio
  for batch in 256 512; do
    images=$(figure bench-gpu "ResNet-50, batch $batch a rank, \\([0-9]*\\) images/s")
    # shellcheck disable=SC2086
    prediction resnet50-$batch "${images:+$(awk -v n="$images" -v b=$batch 'BEGIN { print 1e3 * b / n }')}" $large --train.global_batch $batch
  done
  # shellcheck disable=SC2086
  {
    for level in 2 3; do
      prediction resnet50-256-level$level "$(figure bench-level$level "$step")" $large --train.global_batch 256 --model.fusion $level
    done
    for batch in 8 32; do
      prediction resnet50-$batch "$(figure step-$batch-graph-on "$step")" $large --train.global_batch $batch
    done
    for level in 1 2; do
      prediction mlp-level$level "$(figure bench-mlp-level$level "$step")" $mlp --train.global_batch 4096 --model.fusion $level
    done
  }
}
small="-c /dev/null --data.train synthetic:images:rows=4000,shape=32x32x3,classes=10 --model.name resnet --model.depth 20 --train.steps 40 --train.global_batch 128 --optim.lr 0.03
 --run.resume never --run.seed 3 --comm.timeout 30s --log.every 1000"
large="--data.train synthetic:images:rows=65536,shape=224x224x3,classes=1000 --model.name resnet --model.depth 50 --run.precision fp16 --run.device $device
 --comm.timeout 30s"
mlp="--data.train synthetic:images:rows=65536,shape=32x32x3,classes=1000 --model.name mlp --model.hidden 4096,4096,4096 --model.activation gelu_tanh
 --run.precision fp16 --run.device $device --comm.timeout 30s"
# train NAME RANKS OPTION...: trains the small network. An epoch ends during the run, with a smaller batch.
train() {
  local name=$1 ranks=$2
  shift 2
  # shellcheck disable=SC2086
  try "train-$name" 60 $launch "$ranks" "$millrace" train $small --run.device "$device" --run.dir "$logs/train-$name" "$@"
}
# shellcheck disable=SC2086
{
  try inspect 30 $launch 1 "$millrace" inspect
  binary=$(find "$build" -name test_gpu -type f | head -n 1) || true
  [ -n "$binary" ] && try test_gpu 100 $launch 1 "$binary" --gtest_filter=-Graphed*
  try train-cpu 60 $launch 1 "$millrace" train $small --run.device cpu --run.dir "$logs/train-cpu"
  train fp32 1
  train eager 1 --cuda.graph off
  train tuned-off 1 --cuda.autotune off
  train fp16 1 --run.precision fp16
  train dependent 1 --run.precision fp16 --cuda.dependent_launch on
  train persistent 1 --run.precision fp16 --cuda.persistent_norm on
  for level in 2 3; do train level$level 1 --run.precision fp16 --model.fusion $level; done
  train bf16 1 --run.precision bf16
  train accumulated 1 --train.micro_batch 32
  train two-ranks 2 --comm.backend mpi
  train zero 2 --comm.backend mpi --optim.zero 1
  train compressed 2 --comm.backend mpi --comm.grad_dtype bf16
  train overflow 1 --run.precision fp16 --test.force_overflow_at 7
  [ -n "$binary" ] && try test_gpu-graphed 60 $launch 1 "$binary" --gtest_filter=Graphed*
  for run in fp32 eager tuned-off; do
    near train-$run 1 1e-3
    near train-$run 20 1e-2
  done
  for run in fp16 dependent persistent level2 level3 bf16 overflow; do near train-$run 1 1e-2; done
  # The effect of rounding grows with the steps: on the CPU it is 3 to 6 % at step 20.
  for run in fp16 dependent persistent level2 level3; do
    near train-$run 10 2e-2
    near train-$run 20 1e-1
  done
  # accumulated, two-ranks and zero have smaller micro-batches and thus other batch statistics, so their losses
  # are not compared. The losses that are printed at the end should be finite and similar.
  try bench-gpu 150 $launch 1 "$millrace" bench gpu --comm.timeout 30s --run.device "$device"
  if ! python3 -c 'import torch' 2>/dev/null; then
    table+=("skip  peers, peers-fed: python3 has no torch")
  else
    try peers 200 env -u LD_LIBRARY_PATH python3 tests/peers/resnet50.py --device "$device"
  fi
  for batch in 8 32; do
    for graph in on off; do
      try step-$batch-graph-$graph 30 $launch 1 "$millrace" bench step $large --train.global_batch $batch --cuda.autotune off --cuda.graph $graph
    done
    for key in dependent_launch persistent_norm; do
      try step-$batch-$key 30 $launch 1 "$millrace" bench step $large --train.global_batch $batch --cuda.autotune off --cuda.$key on
    done
  done
  for level in 1 2; do
    try bench-mlp-level$level 60 $launch 1 "$millrace" bench step $mlp --train.global_batch 4096 --model.fusion $level
  done
  for level in 2 3; do
    try bench-level$level 90 $launch 1 "$millrace" bench step $large --train.global_batch 256 --model.fusion $level
  done
  try busy-synthetic 60 $launch 1 "$millrace" train -c /dev/null $large --train.global_batch 256 --train.steps 60 --run.profile 20 --run.resume never --run.dir "$logs/busy"
  if ! python3 -c 'import numpy' 2>/dev/null; then
    table+=("skip  busy-shards: python3 has no numpy to write images with")
  elif [ $((budget - SECONDS)) -le 60 ]; then
    table+=("skip  busy-shards (no time left)")
  else
    try write-images 30 env -u LD_LIBRARY_PATH python3 tests/peers/resnet50.py --write "$logs/images"
    [ $passed = no ] || try pack-images 30 $launch 1 "$millrace" pack --x "$logs/images/x.npy" --y "$logs/images/y.npy" --out "$logs/images" --overwrite
    [ $passed = no ] || try busy-shards 60 $launch 1 "$millrace" train -c /dev/null $large --data.train "$logs/images/train-*.h5" --train.global_batch 256 --train.steps 60 \
      --run.profile 20 --run.resume never --run.dir "$logs/busy-shards" --model.classes 1000
    python3 -c 'import torch' 2>/dev/null && try peers-fed 90 env -u LD_LIBRARY_PATH python3 tests/peers/resnet50.py --device "$device" --fed "$logs/images"
    rm -rf "$logs/images"
  fi
  if [ -e data/fashion-mnist/train-00000.h5 ]; then
    for precision in fp32 fp16; do
      try fashion-$precision 60 $launch 1 "$millrace" train -c inputs/fashion-mnist.cfg --run.device "$device" --run.precision $precision --run.resume never \
        --run.dir "$logs/fashion-$precision"
    done
  else
    table+=("skip  fashion-fp32, fashion-fp16: data/fashion-mnist is not packed (make data)")
  fi
  binary=$(find "$build" -name test_cuda -type f | head -n 1) || true
  [ -n "$binary" ] && try test_cuda 60 $launch 1 "$binary" --gtest_filter='-*Long*'
}
{
  printf '%s\n' "${table[@]}"
  echo "loss of steps 1, 10, 20, 40:"
  for log in "$logs"/train-*.log; do
    run=$(basename "$log" .log)
    echo "  $run: $(loss "$run" 1) $(loss "$run" 10) $(loss "$run" 20) $(loss "$run" 40)"
  done
  (cd "$logs" && grep -H -E 'images/s|^whole step|GPU busy|busy .*%|samples/s while|top-1.*of 10000|skipped' \
    bench-*.log step-*.log peers*.log busy-*.log fashion-*.log 2>/dev/null | sed 's/\.log:/: /' | grep -v ': step ') || true
  predictions
  ratios
} | tee "$logs/table.txt"
exit $failed
