#!/bin/bash
# Predictions of a checkpoint: they agree with eval, do not depend on the number of ranks, need no labels, and a
# failure leaves no file.
# Usage: predict_test.sh MILLRACE MPIEXEC classes|unlabelled|regression|losses|masks|features|table|replace|errors|failures
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"
source "$root/tests/support/python.sh"
predictions=$root/tests/support/predictions.py

# predict RANKS RUN OUTPUT OPTION...
predict() { run_on "$1" predict "$2" --output "$3" "${@:4}"; }
# check NAME: runs check_NAME of tests/support/predictions.py.
check() { "$python" "$predictions" "check_$1" >out 2>err || complain "check_$1 failed: $(tail -n 1 err)"; }
# expect_refused CODE PATTERN OPTION...: predicting with the run `run` fails, and leaves nothing.
expect_refused() {
  expect_says "$1" "^error: .*$2" predict 1 run none.h5 "${@:3}"
  expect_no_file none.h5
  expect_no_file none.h5.tmp
}
# table_run: trains `run` on the table in set/, whose validation data is valid.h5.
table_run() {
  pack_table set --valid-fraction 0.3
  cp set/valid-00000.h5 valid.h5
  table_config
  expect_exit 0 train 1 run --train.epochs 4 --data.valid valid.h5
}

# vectors_run: trains `vectors` on samples that no file holds.
vectors=synthetic:images:rows=64,shape=100,classes=3
vectors_run() {
  printf '[model]\nhidden = 8\n[train]\nglobal_batch = 64\nsteps = 1\n' >vectors.cfg
  expect_exit 0 run_on 1 train -c vectors.cfg --run.dir vectors --data.train $vectors
}

# Probabilities and classes, in the order of the files, on any number of ranks. Their accuracy is that of eval.
case_classes() {
  find_python h5py numpy
  table_run
  expect_exit 0 run_on 1 eval run
  cp out eval
  local ranks
  for ranks in 1 2 3; do
    expect_exit 0 predict $ranks run on$ranks.h5 --data set/train-*.h5 valid.h5 --train.micro_batch 7
    expect_line '^step [0-9]+: predictions in on[123]\.h5: prediction, probabilities 3$' out
    expect_line '^240 samples in .* samples/s: waiting for data .*computing .*writing' out
    expect_number "sum of the shares of time in %" "$(tail -n 1 out | grep -oE '[0-9]+ %' | awk '{ n += $1 } END { print n + 0 }')" "<" 104
    expect_no_file on$ranks.h5.tmp
  done
  expect_exit 0 predict 2 "$(newest_checkpoint run)" top.h5 --data valid.h5 --top-k 2
  check classes
}

# Files without labels give the predictions of those with them; so do several inputs. Labels do not matter.
case_unlabelled() {
  find_python h5py numpy
  "$python" "$predictions" write_unlabelled
  cat >net.cfg <<'CFG'
[data]
train = whole.h5
x = a,b
[model]
name = layers
layers = input a
layers = linear 30 as=image
layers = input b
layers = linear 30 as=row
layers = add image
layers = linear outputs
[train]
global_batch = 10
epochs = 2
CFG
  expect_exit 0 train 1 run
  expect_exit 0 predict 1 run whole-y.h5 --data whole.h5
  expect_exit 0 predict 3 run parts.h5 --data first.h5 second.h5
  check unlabelled
  # Labels of 0 and 1 in one vector of outputs.
  sed -i 's/^x = .*/x = b/; /input/d; /image/d' net.cfg
  expect_exit 0 train 1 binary --model.loss binary_cross_entropy
  expect_exit 0 run_on 1 eval binary --data.valid whole.h5
  cp out eval
  expect_exit 0 predict 2 binary binary.h5 --data first.h5 second.h5
  check binary
}

# Targets, and fields that follow each other, in the unit of the data.
case_regression() {
  find_python h5py numpy
  "$python" "$predictions" write_regression
  printf '[model]\nhidden = 16\n[train]\nglobal_batch = 10\nepochs = 20\n[optim]\nname = adamw\nlr = 0.01\n' >net.cfg
  local name
  for name in targets one; do
    expect_exit 0 train 1 $name --data.train $name.h5 --data.valid $name.h5
    expect_exit 0 run_on 1 eval $name
    cp out $name.eval
    expect_exit 0 predict 2 $name p-$name.h5 --data $name.h5
    expect_says 2 '--top-k.*one class' predict 1 $name none.h5 --data $name.h5 --top-k 2
    expect_says 2 '--probabilities.*no classes' predict 1 $name none.h5 --data $name.h5 --probabilities on
  done
  expect_exit 0 train 1 series --data.train series.h5 --data.valid series.h5 --data.sample pair --data.lead 2
  expect_exit 0 run_on 1 eval series
  cp out series.eval
  expect_exit 0 predict 2 series p-series.h5 --data series.h5
  expect_exit 0 train 1 scaled --data.train series.h5 --data.sample pair --data.lead 2 --data.transform log1p \
    --data.scale 0.5 --data.offset 3
  expect_exit 0 predict 1 scaled p-scaled.h5 --data series.h5
  check regression
}

# A network with several losses: a group for each.
case_losses() {
  find_python h5py numpy
  "$python" "$predictions" write_losses
  cat >net.cfg <<'CFG'
[data]
train = whole.h5
valid = whole.h5
y = kind,energy
[model]
name = layers
layers = linear 30
layers = relu as=trunk
layers = linear 4
layers = loss cross_entropy y=kind as=kind
layers = linear 2 from=trunk
layers = loss mse y=energy as=energy
[train]
global_batch = 10
epochs = 15
[optim]
name = adamw
lr = 0.01
CFG
  expect_exit 0 train 1 run
  expect_exit 0 run_on 1 eval run
  cp out eval
  expect_exit 0 predict 2 run p.h5 --data x.h5
  check losses
  expect_exit 0 predict 1 run p.csv --data x.h5
  expect_equal "header" "$(printf '%s,' row kind.prediction kind.probabilities_{0..3} energy.prediction_{0,1})" "$(head -n 1 p.csv),"
}

# A class at each position: images, and volumes whose layout only the labels of the training data tell.
case_masks() {
  find_python h5py numpy
  "$python" "$predictions" write_masks
  cat >net.cfg <<'CFG'
[model]
name = layers
layers = conv 8 1x1 bias=on
layers = relu
layers = conv outputs 1x1 bias=on
[train]
global_batch = 6
epochs = 8
[optim]
name = adamw
lr = 0.02
CFG
  local name
  for name in images volumes; do
    [ $name = images ] || sed -i 's/1x1 /1x1x1 /' net.cfg
    expect_exit 0 train 1 $name --data.train $name.h5 --data.valid $name.h5
    expect_exit 0 run_on 1 eval $name
    cp out $name.eval
    expect_exit 0 predict 1 $name one-$name.h5 --data $name.h5
    expect_exit 0 predict 2 $name two-$name.h5 --data $name-x.h5 --probabilities on
  done
  check masks
  expect_says 2 'a table cannot hold .mask.*\.h5' predict 1 images none.csv --data images.h5
}

# The results of a layer, which need not be one that is kept otherwise. They are large enough for a thread.
case_features() {
  find_python h5py numpy
  { printf '[data]\ntrain = synthetic:images:rows=64,shape=32x32x3,classes=4\n' && conv_model; } >net.cfg
  expect_exit 0 train 1 run --train.global_batch 16 --train.epochs 1
  local data=(--data 'synthetic:images:rows=37,shape=32x32x3,classes=4,seed=3' --train.micro_batch 16) layer
  expect_exit 0 predict 1 run p.h5 "${data[@]}"
  for layer in conv1 batchnorm1 relu1 globalpool1 linear1; do
    expect_exit 0 predict 2 run $layer.h5 "${data[@]}" --features $layer
  done
  expect_exit 0 predict 1 run half.h5 "${data[@]}" --features linear1 --run.precision bf16
  expect_exit 0 "$millrace" export run --output model.safetensors
  expect_exit 0 predict 2 model.safetensors exported.h5 "${data[@]}" --features relu1
  check features
  expect_refused 2 "no layer is called 'relu2'.*relu1, " "${data[@]}" --features relu2
  expect_refused 2 '--features .*--top-k' "${data[@]}" --features relu1 --top-k 2
}

# A table holds the same numbers, and the names of the classes.
case_table() {
  awk 'BEGIN { print "a,b,kind"; for (i = 0; i < 90; ++i) print i % 9 "," i * i % 7 "," (i % 9 > 4 ? "high, or so" : "low") }' |
    sed 's/high, or so/"&"/' >table.csv
  expect_exit 0 "$millrace" pack --x table.csv --y-name kind --out set
  table_config
  expect_exit 0 train 1 run --train.epochs 8
  expect_exit 0 predict 1 run p.csv --data 'set/*.h5'
  expect_exit 0 predict 2 run two.csv --data 'set/*.h5' --top-k 1
  expect_equal "header" 'row,prediction,name,"probabilities_high, or so",probabilities_low' "$(head -n 1 p.csv)"
  expect_equal "header" 'row,top_classes,top_names,top_probabilities' "$(head -n 1 two.csv)"
  expect_equal "rows" 90 "$(tail -n +2 p.csv | wc -l)"
  expect_lines 90 '^[0-9]+,(0,"high, or so"|1,low),[0-9.e-]+,[0-9.e-]+$' p.csv
  expect_equal "classes of both" "$(cut -d , -f 1,2 p.csv | tail -n +2)" "$(cut -d , -f 1,2 two.csv | tail -n +2)"
  expect_says 3 'two\.csv exists already' predict 1 run two.csv --data 'set/*.h5' --overwrite
  vectors_run
  expect_says 2 'large\.csv would hold 1600000 values .*\.h5' predict 1 vectors large.csv --data ${vectors/64/400000}
  expect_no_file large.csv
}

# Only a file that predict wrote is replaced, and only on request.
case_replace() {
  table_run
  expect_exit 0 predict 1 run p.h5 --data valid.h5
  cp p.h5 before.h5
  expect_says 3 'p\.h5 exists already\. --overwrite' predict 2 run p.h5 --data valid.h5
  expect_same_files p.h5 before.h5
  expect_exit 0 predict 2 run p.h5 --data valid.h5 --overwrite
  cp valid.h5 other.h5
  expect_says 3 'other\.h5 exists and was not written by millrace predict' predict 1 run other.h5 --data valid.h5 --overwrite
  expect_same_files valid.h5 other.h5
  echo text >none.h5.tmp
  expect_says 3 'none\.h5\.tmp exists and was not written' predict 2 run none.h5 --data valid.h5
  expect_equal "a file that was there" text "$(cat none.h5.tmp)"
}

case_errors() {
  table_run
  expect_exit 0 predict 1 run p.h5 --data valid.h5
  expect_refused 2 'no data\. .*--data'
  expect_refused 2 '--data and --data\.valid' --data valid.h5 --data.valid valid.h5
  expect_refused 3 "'gone\.h5' matches no file" --data gone.h5
  expect_refused 3 'p\.h5 has no data set' --data p.h5
  expect_refused 2 '--top-k: 4 of 3 classes' --data valid.h5 --top-k 4
  expect_refused 2 "--top-k: '0'" --data valid.h5 --top-k 0
  expect_says 2 "'p\.txt' ends in neither" predict 1 run p.txt --data valid.h5
  expect_says 3 'no folder nowhere' predict 2 run nowhere/p.h5 --data valid.h5
  expect_says 3 'no intact checkpoint in other' "$millrace" predict other --data valid.h5
  expect_says 2 'nothing to predict with' "$millrace" predict --data valid.h5
  write_table 20 90 >narrow.csv
  expect_exit 0 "$millrace" pack --x narrow.csv --y-name 91 --out narrow
  expect_refused 3 '90 fp32.*100 fp32' --data 'narrow/*.h5'
  printf 'one text and another text, and one more text' >text.txt
  expect_exit 0 "$millrace" pack --x text.txt --tokens uint8 --context 8 --out text
  printf '[data]\ntrain = text/*.h5\nsample = tokens\nwindow = 8\n[model]\nname = layers\nlayers = embedding 4\nlayers = linear outputs\n[train]\nsteps = 1\n' >net.cfg
  expect_exit 0 train 1 language
  expect_says 2 'millrace generate' predict 2 language none.h5 --data 'text/*.h5'
}

# A full disk, a file that cannot be read, a signal: they end all ranks, and leave no file.
case_failures() {
  vectors_run
  (ulimit -f 64 && expect_says 3 '^error: .*none\.h5.*File too large' predict 1 vectors none.h5 --data ${vectors/64/20000}
    exit $failures) || failures=$((failures + 1))
  expect_equal "files of a prediction beyond the limit" "" "$(find . -name 'none*')"

  table_run
  cp valid.h5 broken.h5
  cat >faulty_rank <<'SH'
#!/bin/bash
[ "${OMPI_COMM_WORLD_RANK:-0}" != 1 ] || export LD_PRELOAD=$FAULTY_FILES MILLRACE_TEST_FAULTS=broken,4096,9000000,5,999999,0
exec "$@"
SH
  chmod +x faulty_rank
  export FAULTY_FILES=$faulty_files
  under=(timeout 30 ./faulty_rank)
  expect_exit 3 predict 2 run none.h5 --data broken.h5 --data.retries 0 --data.reader direct
  expect_lines 1 'error: .*broken\.h5.*Input/output'
  under=()
  expect_equal "files of a prediction that cannot read" "" "$(find . -name 'none*')"

  start predict 1 vectors none.h5 --data ${vectors/64/20000000} --probabilities off
  wait_for test -e none.h5.tmp
  kill -TERM "$pid"
  expect_end 75
  expect_equal "files of a prediction that was stopped" "" "$(find . -name 'none*')"
}

run_case "$3"
