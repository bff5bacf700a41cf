#!/bin/bash
# What a sample may be besides a row, from outside, by the configurations in inputs/: samples_test.sh SOURCE MILLRACE MPIEXEC CASE.
# Real data lies beside the sources, or where MILLRACE_TEST_DATA says; 77: it does not.
set -u
source=$1
millrace=$2
mpiexec=$3
real=${MILLRACE_TEST_DATA:-$source/../shared/data}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() { echo "FAILED: $*"; failures=$((failures + 1)); }
skip() { echo "skipped: $*"; exit 77; }
train() { "$mpiexec" --bind-to none -n 2 "$millrace" train -c "$source/inputs/$1.cfg" "${@:2}"; }
alone() { "$millrace" train -c "$source/inputs/$1.cfg" "${@:2}"; }
value() { sed -n "s/^  \"$2\": \([^,]*\),\{0,1\}$/\1/p" "$1/summary.json"; }
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a != "null" && a < b) }'; }

case $4 in
hyperspectral)
  [ -e "$real/hyperspectral/JasperRidge2_R198.mat" ] || skip "no scene in $real/hyperspectral"
  for python in python3 /usr/bin/python3 none; do $python -c 'import scipy.io, h5py' 2>/dev/null && break; done
  [ $python != none ] || skip "no python3 with scipy and h5py"
  mkdir -p data/hyperspectral
  $python - "$real/hyperspectral" <<'PY' || complain "the scene cannot be converted"
import sys, scipy.io, h5py
scene = scipy.io.loadmat(sys.argv[1] + "/JasperRidge2_R198.mat")["Y"]
shares = scipy.io.loadmat(sys.argv[1] + "/_EndJasperRidge2_R198.mat")["A"]
with h5py.File("data/hyperspectral/jasper-ridge.h5", "w") as f:
    f["x"] = scene.T.reshape(100, 100, 198, order="F")
    f["y"] = (shares.argmax(0) + 1).reshape(100, 100, order="F").astype("u1")
PY
  train hyperspectral --run.dir run --train.epochs 3 >log 2>&1 || complain "training failed"
  # Of 10,000 pixels the largest class has 3493; the held-out ones are no neighbours of those trained on.
  below 0.85 "$(value run valid_accuracy)" || complain "accuracy $(value run valid_accuracy)"
  "$millrace" plan -c "$source/inputs/hyperspectral.cfg" >seen 2>&1
  grep -q "^data: 6816 samples of 5x5x198 uint16 .*patches of 5x5 (0.2 of the labelled pixels held out) from 100x100x198.*validation 2000" seen || { complain "plan"; head -5 seen; }
  "$millrace" inspect data/hyperspectral/jasper-ridge.h5 --sample patch --patch 5 >seen 2>&1
  grep -q "as a data set: 10000 samples in 1 files, samples 5x5x198 uint16, channels last (by the label map), 4 classes" seen || { complain "inspect"; cat seen; }
  ;;
text)
  text=$real/text/tinyshakespeare.txt
  [ -e "$text" ] || skip "no text in $real/text"
  "$mpiexec" --bind-to none -n 2 "$millrace" pack --x "$text" --tokens uint8 --context 2047 --valid-fraction 0.1 --out data/text >log 2>&1 || complain "pack"
  train text --run.dir run --train.steps 300 --data.stride 3 >>log 2>&1 || complain "training failed"
  # Nats a letter of who knows how often each letter comes, and nothing else.
  entropy=$(od -An -v -tu1 -w1 "$text" | awk '{ ++n[$1] } END { for (t in n) h -= n[t] / NR * log(n[t] / NR); print h }')
  below "$(value run valid_loss)" "$(awk -v h="$entropy" 'BEGIN { print h - 0.6 }')" || complain "loss $(value run valid_loss), entropy of single letters $entropy"
  alone text --run.dir other --train.steps 2 --data.vocabulary 100 >seen 2>&1
  [ $? -eq 3 ] && grep -q "is not below the vocabulary of 100. raise data.vocabulary" seen || { complain "letters past the vocabulary"; cat seen; }
  alone text --run.dir other --train.steps 2 --model.name mlp >seen 2>&1
  [ $? -eq 2 ] && grep -q "mlp takes no tokens" seen || { complain "tokens for an mlp"; cat seen; }
  ;;
forecast)  # a sum of waves that travel at different speeds, and noise
  series() {
    LC_ALL=C awk -v first="$1" -v rows="$2" 'BEGIN { srand(first)
      for (i = 0; i < 32; ++i) printf "p%d,", i
      print "step"
      for (t = first; t < first + rows; ++t) {
        for (i = 0; i < 32; ++i) printf "%.5f,", sin(0.1963495 * i - 0.5 * t) + 0.5 * sin(0.3926991 * i + 0.8 * t) + 0.1 * (rand() - 0.5)
        print t } }'
  }
  series 0 1500 >past.csv
  series 5000 300 >future.csv
  for part in past future; do
    "$millrace" pack --x $part.csv --y-name step --no-shuffle --prefix $part --out data/forecast >log 2>&1 || complain "pack of $part"
  done
  train forecast --run.dir run --train.epochs 4 >>log 2>&1 || complain "training failed"
  persistence=$(awk -F, 'NR > 1 { for (i = 1; i <= 32; ++i) { x[NR, i] = $i; sum += $i; squares += $i * $i
      if (NR > 3) change += ($i - x[NR - 2, i]) ^ 2 } }
    END { n = 32 * (NR - 1); print change / (32 * (NR - 3)) / (squares / n - (sum / n) ^ 2) }' future.csv)
  below "$(value run valid_loss)" "$(awk -v p="$persistence" 'BEGIN { print p / 10 }')" || complain "loss $(value run valid_loss), of persistence $persistence"
  grep -q "on 298 rows" log || { complain "pairs past the end of a file, or missing"; tail -3 log; }
  # Stopped in the middle of an epoch, it goes on with the same pairs, and not with others.
  set -- --train.epochs 1 --optim.schedule constant --optim.warmup 0
  alone forecast --run.dir whole "$@" >log 2>&1
  alone forecast --run.dir parts "$@" --train.steps 20 --train.evaluate off >>log 2>&1
  alone forecast --run.dir parts "$@" --data.lead 3 >refused 2>&1
  [ $? -eq 2 ] && grep -q "with other samples (pairs of rows t and t + 2 then, pairs of rows t and t + 3 now)" refused || { complain "another lead"; cat refused; }
  alone forecast --run.dir parts "$@" >>log 2>&1 || complain "the resumed run failed"
  for run in whole parts; do sed 's/,"samples_per_second".*//' $run/metrics.jsonl >$run.fields; done
  cmp whole.fields parts.fields || complain "the resumed run differs"
  alone forecast --run.dir other --data.augment on >seen 2>&1
  [ $? -eq 2 ] && grep -q "data.augment: with data.sample = pair the target is a whole row" seen || { complain "augmented pairs"; cat seen; }
  alone forecast --run.dir other --data.reader uring >seen 2>&1
  [ $? -eq 2 ] && grep -q "uring reads whole rows, but data.sample = pair extracts samples from an array" seen || { complain "uring"; cat seen; }
  ;;
*) complain "no case $4" ;;
esac
[ $failures -eq 0 ] || { tail -n 20 log; exit 1; }
