#!/bin/bash
# Samples that are not single rows of an array (patches of a scene, tokens of a text, pairs of a series):
# the configurations in inputs/ train on them and reach the stated quality. Parts of one data set (splits). What a run says of its data (examined).
# The real data is expected beside the source tree or in MILLRACE_TEST_DATA. Without it a case is skipped.
# Usage: samples_test.sh MILLRACE MPIEXEC hyperspectral|text|forecast|splits|examined
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"
source "$root/tests/support/python.sh"
real=${MILLRACE_TEST_DATA:-$root/../shared/data}
config=$root/inputs/$3.cfg

# train_input RANKS RUN_FOLDER OPTION...: trains with the configuration of the case in inputs/.
train_input() { run_on "$1" train -c "$config" --run.dir "${@:2}"; }
# expect_same_eval RUN: the newest checkpoint alone, without training data, gives the validation loss of the run.
expect_same_eval() {
  cp "$(newest_checkpoint "$1")" model.h5
  expect_exit 0 run_on 2 eval model.h5 --data.train gone.h5
  expect_line "validation loss $(LC_ALL=C printf %.4f "$(summary "$1" valid_loss)")"
}

case_hyperspectral() {
  [ -e "$real/hyperspectral/JasperRidge2_R198.mat" ] || skip "no scene in $real/hyperspectral"
  find_python scipy.io h5py
  mkdir -p data/hyperspectral
  "$python" - "$real/hyperspectral" <<'PY'
import sys, scipy.io, h5py
scene = scipy.io.loadmat(sys.argv[1] + "/JasperRidge2_R198.mat")["Y"]
shares = scipy.io.loadmat(sys.argv[1] + "/_EndJasperRidge2_R198.mat")["A"]
with h5py.File("data/hyperspectral/jasper-ridge.h5", "w") as f:
    f["x"] = scene.T.reshape(100, 100, 198, order="F")
    f["y"] = (shares.argmax(0) + 1).reshape(100, 100, order="F").astype("u1")
PY
  expect_exit 0 train_input 2 run --train.epochs 3
  expect_same_eval run
  # The largest class has 3493 of the 10,000 pixels. Held-out pixels are not neighbours of training pixels.
  expect_number "accuracy" "$(summary run valid_accuracy)" ">" 0.85
  expect_exit 0 "$millrace" plan -c "$config"
  expect_line '^data: 6816 samples of 5x5x198 uint16 .*patches of 5x5 .*100x100x198.*validation 2000'
  expect_exit 0 "$millrace" inspect data/hyperspectral/jasper-ridge.h5 --sample patch --patch 5
  expect_line '10000 samples in 1 files, samples 5x5x198 uint16, channels last .*, 4 classes'
}

case_text() {
  local text=$real/text/tinyshakespeare.txt entropy
  [ -e "$text" ] || skip "no text in $real/text"
  expect_exit 0 run_on 2 pack --x "$text" --tokens uint8 --context 2047 --valid-fraction 0.1 --out data/text
  expect_exit 0 train_input 2 run --train.steps 300 --data.stride 3
  expect_same_eval run
  # The entropy of single letters, in nats: the loss of a model that only knows how frequent each letter is.
  entropy=$(od -An -v -tu1 -w1 "$text" | awk '{ ++n[$1] } END { for (t in n) h -= n[t] / NR * log(n[t] / NR); print h }')
  expect_number "loss" "$(summary run valid_loss)" "<" "$(awk -v h="$entropy" 'BEGIN { print h - 0.6 }')"
  expect_exit 3 train_input 1 other --train.steps 2 --data.vocabulary 100
  expect_line 'vocabulary of 100.*data\.vocabulary'
  expect_exit 2 train_input 1 other --train.steps 2 --model.name mlp
  expect_line 'mlp.*tokens'
}

# A sum of waves that travel at different speeds, and noise.
series() {  # series FIRST_ROW ROWS
  LC_ALL=C awk -v first="$1" -v rows="$2" 'BEGIN { srand(first)
    for (i = 0; i < 32; ++i) printf "p%d,", i
    print "step"
    for (t = first; t < first + rows; ++t) {
      for (i = 0; i < 32; ++i) printf "%.5f,", sin(0.1963495 * i - 0.5 * t) + 0.5 * sin(0.3926991 * i + 0.8 * t) + 0.1 * (rand() - 0.5)
      print t } }'
}
case_forecast() {
  local part persistence
  series 0 1500 >past.csv
  series 5000 300 >future.csv
  for part in past future; do
    expect_exit 0 "$millrace" pack --x $part.csv --y-name step --no-shuffle --prefix $part --out data/forecast
  done
  expect_exit 0 train_input 2 run --train.epochs 4
  expect_line 'on 298 rows'  # pairs do not cross the end of a file
  # The loss of the forecast that the field does not change.
  persistence=$(awk -F, 'NR > 1 { for (i = 1; i <= 32; ++i) { x[NR, i] = $i; sum += $i; squares += $i * $i
      if (NR > 3) change += ($i - x[NR - 2, i]) ^ 2 } }
    END { n = 32 * (NR - 1); print change / (32 * (NR - 3)) / (squares / n - (sum / n) ^ 2) }' future.csv)
  expect_number "loss" "$(summary run valid_loss)" "<" "$(awk -v p="$persistence" 'BEGIN { print p / 10 }')"
  expect_same_eval run
  # A run that stopped in the middle of an epoch continues with the same pairs. Another lead is refused.
  set -- --train.epochs 1 --optim.schedule constant --optim.warmup 0
  expect_exit 0 train_input 1 whole "$@"
  expect_exit 0 train_input 1 parts "$@" --train.steps 20 --train.evaluate off
  expect_exit 2 train_input 1 parts "$@" --data.lead 3
  expect_line 't \+ 2 .*t \+ 3 '
  expect_exit 0 train_input 1 parts "$@"
  expect_same_metrics whole parts
  expect_exit 2 train_input 1 other --data.augment on
  expect_line 'data\.augment: .*data\.sample = pair'
  expect_exit 2 train_input 1 other --data.reader uring
  expect_line 'uring .*data\.sample = pair'
}

# One file is divided by groups; an evaluation, a prediction and another number of ranks see the same parts.
case_splits() {
  find_python h5py numpy
  "$python" - <<'PY'
import h5py, numpy as np
rng = np.random.default_rng(1)
for name, begin, end in ("whole", 0, 900), ("part-a", 0, 200), ("part-b", 200, 900):
    rng = np.random.default_rng(1)
    x = rng.normal(0, 1, (900, 6)).astype("f4")
    group = rng.integers(0, 45, 900)
    y = np.stack([5000 + 800 * x[:, 0] + 300 * x[:, 1], 0.02 * x[:, 2] + 0.001 * rng.normal(0, 1, 900)], 1)
    with h5py.File(name + ".h5", "w") as f:
        f["x"], f["y"], f["patient"] = x[begin:end], y[begin:end].astype("f4"), group[begin:end]
PY
  cat >net.cfg <<'CFG'
[data]
train = whole.h5
split = 0.7,0.1,0.2
split_by = group
group = patient
normalize_targets = on
[model]
hidden = 16
[train]
epochs = 40
global_batch = 32
[optim]
lr = 0.05
[run]
threads = 1
CFG
  expect_exit 0 train 2 run
  expect_line '^data\.split: [0-9]+ samples for training, [0-9]+ for validation, [0-9]+ for the test, of 45 groups$' err
  expect_exit 0 run_on 1 eval run --split test
  cp run/evaluation.json whole.json
  expect_line '^output +MAE +RMSE +R2$' out
  expect_exit 0 run_on 2 eval run --split test --data.train part-a.h5 part-b.h5
  expect_exit 0 run_on 2 predict run --split test --output test.h5
  "$python" - <<'PY' || complain "the results of the test part disagree"
import h5py, json, numpy as np
whole, parts = json.load(open("whole.json")), json.load(open("run/evaluation.json"))
with h5py.File("test.h5") as f, h5py.File("whole.h5") as data:
    sample, said = f["sample"][:], f["prediction"][:].astype("f8")
    y, group = data["y"][:].astype("f8"), data["patient"][:]
    assert len(set(sample)) == len(sample) == whole["rows"] == parts["rows"], (len(sample), whole["rows"])
    inside = set(group[sample])
    assert all((g in inside) == (i in set(sample)) for i, g in enumerate(group)), "a group is divided"
assert all(o["r2"] > 0.9 for o in whole["outputs"]), whole["outputs"]  # without scaling, both stay near 0 or below
for o in 0, 1:
    d, t = said[:, o] - y[sample, o], y[sample, o]
    for name, value in ("mae", abs(d).mean()), ("rmse", (d**2).mean() ** 0.5), ("r2", 1 - (d**2).sum() / ((t - t.mean()) ** 2).sum()):
        for result in whole, parts:
            assert abs(result["outputs"][o][name] - value) < 1e-4 * abs(value), (o, name, result["outputs"][o], value)
PY
  expect_exit 0 "$millrace" report run
  expect_texts run/report.html Evaluation Outputs "the part test"
  # The file of another program is kept, and the run is evaluated all the same.
  echo '{"format": 1, "accuracy": 0.9}' >run/evaluation.json
  expect_exit 0 run_on 2 eval run --split test
  expect_line 'the evaluation is only printed: run/evaluation\.json exists' err
  expect_says 3 'exists and was not written by millrace eval' run_on 2 eval run --split test --output run/evaluation.json
  expect_exit 0 "$millrace" report run
  expect_equal "a foreign file" '{"format": 1, "accuracy": 0.9}' "$(cat run/evaluation.json)"
  expect_exit 0 train 1 plain --data.normalize_targets off --optim.lr 1e-12 --train.epochs 1
  expect_says 2 'normalize_targets: the network of the checkpoint was trained without' train 2 plain --data.normalize_targets on --train.epochs 2
  expect_exit 0 "$millrace" inspect whole.h5 --split 0.7,0.1,0.2 --split-by group --group patient
  expect_line '^data\.split: [0-9]+ samples for training' out
  refuse() { expect_says 2 "^error: .*$1" run_on 1 "${@:2}"; }
  refuse 'data\.split: the shares sum to 1\.2' train -c net.cfg --data.split 0.8,0.2,0.2
  refuse "data\\.fold: '6/5': folds are numbered from 1 to 5" train -c net.cfg --data.fold 6/5
  refuse 'data\.split: the parts are not those of the training' eval run --split test --data.split_seed 3
  expect_says 3 "^error: data\\.group: whole\\.h5 has no data set 'person'" run_on 2 train -c net.cfg --data.group person --run.dir none
}

# A new run describes the values of its data, and names what is probably a mistake. One that resumes does neither.
case_examined() {
  find_python h5py numpy
  "$python" - <<'PY'
import h5py, numpy as np
x = np.arange(480, dtype="f4").reshape(80, 6) % 17
holes = x.copy()
holes[[0, 61], 3] = np.nan
for name, x, y in ("sound", x, np.arange(80) % 2), ("holes", holes, np.arange(80) % 2), ("numbers", x, np.arange(80)), ("bare", x, None):
    with h5py.File(name + ".h5", "w") as f:
        f["x"] = x
        if y is not None:
            f["y"] = y
PY
  printf '%s\n' '[data]' 'train = sound.h5' '[train]' 'steps = 2' 'global_batch = 16' >net.cfg
  # The survey stops after some time: on a busy machine it has read row 0 at least.
  local values="^data\\.train: values of 'x' as stored: [0-9]+ to [0-9]+, 0 of [0-9]+ rows with NaN or infinity( \\(in .*)?$"
  expect_exit 0 run_on 2 train -c net.cfg --run.dir sound
  expect_lines 1 '^data\.train: rows per class: 0: 40, 1: 40$' out
  expect_lines 1 "$values" out
  expect_no_line warning
  expect_exit 0 run_on 1 train -c net.cfg --run.dir sound --train.steps 3
  expect_no_line '^data\.train: '
  expect_exit 0 run_on 1 pack --x sound.h5 --out set --valid-fraction 0.5
  expect_exit 0 run_on 1 train -c net.cfg --run.dir packed --data.train 'set/train-*.h5'
  expect_line '^data\.train: rows per class: 0: [0-9]+, 1: [0-9]+$' out
  expect_exit 0 run_on 2 train -c net.cfg --run.dir valid --data.valid holes.h5
  expect_lines 1 "^warning: data\\.valid: 'x': [12] of [0-9]+ rows have values that are not finite, the first is row 0 of holes\\.h5"
  expect_exit 4 run_on 1 train -c net.cfg --run.dir holes --data.train holes.h5 --data.normalize off --train.steps 9
  expect_lines 1 "^warning: data\\.train: 'x': [12] of [0-9]+ rows .* the first is row 0 of holes\\.h5\\. correct them"
  expect_exit 0 run_on 1 train -c net.cfg --run.dir numbers --data.train numbers.h5
  expect_lines 1 "^warning: data\\.train: 'y': there are 80 different labels in 80 samples"
  expect_says 0 'samples 6 fp32, no labels' run_on 2 inspect bare.h5
  expect_line "^values of 'x' as stored: 0 to 16"
  expect_says 3 "has no data set 'z'" run_on 1 inspect bare.h5 --y-name z
}

run_case "$3"
