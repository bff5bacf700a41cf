#!/bin/bash
# Training on real volumes and fields with the configurations in inputs/ is better than guessing, and
# options that do not fit the data are refused.
# The real data is expected beside the source tree or in MILLRACE_TEST_DATA. Without it a case is skipped.
# Usage: fields_test.sh MILLRACE MPIEXEC volume|fields
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"
real=${MILLRACE_TEST_DATA:-$root/../shared/data}/volume3d
config=$root/inputs/$3.cfg

need() { [ -e "$real/$1" ] || skip "$real/$1 does not exist (MILLRACE_TEST_DATA names the folder of test data)"; }
train_input() { expect_exit 0 run_on 1 train -c "$config" --run.dir run --run.threads 1 --data.workers 1 "$@"; }
# refused PATTERN OPTION...: plan exits with 2 and a message that matches.
refused() {
  expect_exit 2 "$millrace" plan -c "$config" "${data[@]}" "${@:2}"
  expect_line "$1" err
}

case_volume() {
  local set
  need adrenalmnist3d.npz
  for set in train test; do
    expect_exit 0 "$millrace" pack --x "$real/adrenalmnist3d.npz" --x-name ${set}_images --y-name ${set}_labels --layout no_channels --out . --prefix $set
  done
  data=(--data.train train-*.h5 --data.valid test-*.h5)
  train_input "${data[@]}"
  # The larger class has 0.768 of the volumes.
  expect_number "accuracy" "$(summary run valid_accuracy)" ">" 0.775
  refused 'data\.subvolume: 29 .*28' --data.subvolume 29 24 24
  refused 'data\.subvolume: .*2 ' --data.subvolume 24 24
  refused 'data\.flip_axes ' --data.augment off
  refused 'data\.channels: .*1' --data.channels 0-1
  refused "data\.channels: '2-1'" --data.channels 2-1
  refused 'data\.mean .*2 .*data\.std .*1' --data.mean 0 1 --data.std 1
  refused 'data\.mean .*data\.std .*2 ' --data.mean 0 1 --data.std 1 1
}

case_fields() {
  local guess
  need ch2bet.nii.gz
  need brodmann.nii.gz
  guess=$("$build/tests/app/make_fields" "$real/ch2bet.nii.gz" "$real/brodmann.nii.gz" .)
  data=(--data.train train.h5 --data.valid valid.h5)
  train_input "${data[@]}"
  expect_line '2 .*data sets.*/t1, /edge' run/run.json
  expect_number "loss, of a guess $guess," "$(summary run valid_loss)" "<" "$(awk -v g="$guess" 'BEGIN { print g / 2 }')"
  # One of the two inputs, with a given mean and standard deviation.
  train_input "${data[@]}" --data.channels 0 --data.mean 3.5 --data.std 1 --train.epochs 1 --run.resume never
  expect_number "loss of one channel" "$(summary run valid_loss)" "<" 1
  # A run that would resume with another transform is refused.
  expect_exit 2 run_on 1 train -c "$config" --run.dir run "${data[@]}" --data.channels 0 --data.mean 60 --data.std 30 --data.transform none --train.epochs 2
  expect_line "holds another network .*log1p, .* then, .* now"
}

run_case "$3"
