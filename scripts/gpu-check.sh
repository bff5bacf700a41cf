#!/bin/bash
# Everything that needs a GPU, in one command of a few minutes: gpu-check.sh [build folder] [log folder]. Runs the tests of label gpu, trains a small
# network on GPU and processor and compares, measures, and prints a short table. Logs stay in the log folder.
set -u
build=${1:-build}
logs=${2:-$build/gpu-check}
mkdir -p "$logs"
millrace=$build/millrace
launch=${MILLRACE_LAUNCH-}  # e.g. OUT/run.sh 1, where Open MPI was carried along
table=()
failed=0
try() {  # try NAME SECONDS command...
  local name=$1 limit=$2 began=$SECONDS
  shift 2
  if timeout "$limit" "$@" >"$logs/$name.log" 2>&1; then
    table+=("ok    $name ($((SECONDS - began)) s)")
  else
    table+=("FAIL  $name (exit $?, $((SECONDS - began)) s): $(tail -n 1 "$logs/$name.log")")
    failed=1
  fi
}
losses() { sed 's/.*"loss": \([^,]*\).*/\1/' "$logs/$1/metrics.jsonl" | sed -n '1p;10p;20p' | tr '\n' ' '; }
net="--data.train synthetic:images:rows=4096,shape=32x32x3,classes=10 --model.name resnet --model.depth 20 --train.steps 20 --train.global_batch 128
 --run.resume never"
# shellcheck disable=SC2086
{
  try inspect 60 $launch "$millrace" inspect
  for test in test_gpu test_cuda; do
    binary=$(find "$build" -name $test -type f | head -n 1)
    [ -n "$binary" ] && try $test 180 $launch "$binary"
  done
  for precision in fp32 fp16 bf16; do
    try train-$precision 60 $launch "$millrace" train $net --run.device cuda --run.precision $precision --run.dir "$logs/train-$precision"
  done
  try train-eager 60 $launch "$millrace" train $net --run.device cuda --cuda.graph off --run.dir "$logs/train-eager"
  try train-cpu 120 $launch "$millrace" train $net --run.device cpu --run.dir "$logs/train-cpu"
  try bench-gpu 180 $launch "$millrace" bench gpu
  if [ -d tests/peers ] && python3 -c 'import torch' 2>/dev/null; then
    try peers 180 env -u LD_LIBRARY_PATH python3 tests/peers/resnet50.py
  fi
}
printf '%s\n' "${table[@]}" | tee "$logs/table.txt"
{
  echo "loss of steps 1, 10, 20:"
  for run in train-cpu train-fp32 train-eager train-fp16 train-bf16; do echo "  $run: $(losses $run)"; done
  grep -h 'images/s' "$logs"/bench-gpu.log "$logs"/peers.log 2>/dev/null
} | tee -a "$logs/table.txt"
exit $failed
