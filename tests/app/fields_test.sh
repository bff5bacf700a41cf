#!/bin/bash
# Runs on real volumes and fields: fields_test.sh MILLRACE MAKE_FIELDS SOURCE volume|fields. Skipped (77) where the data is not there.
set -u
millrace=$1 make_fields=$2 source=$3
from=${MILLRACE_TEST_DATA:-$source/../shared/data}/volume3d
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
die() { echo "FAILED: $*"; cat out err; exit 1; }
need() { [ -e "$from/$1" ] || { echo "skipped: $from/$1 is not there (MILLRACE_TEST_DATA names the folder of test data)"; exit 77; }; }
run() { "$millrace" train -c "$source/inputs/$1.cfg" --run.dir run --run.threads 1 --data.workers 1 "${@:2}" >out 2>err || die "$1 ended with $?"; }
figure() { sed -n "s/.*\"$1\": \([-0-9.e]*\).*/\1/p" run/summary.json; }
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a < b) }'; }
# refused TEXT OPTION...: exit 2 or 3 and a line that says TEXT.
refused() {
  text=$1
  shift
  "$millrace" plan -c "$source/inputs/$config.cfg" "$@" >out 2>err
  [ $? -ge 2 ] || die "$* was not refused"
  grep -qF -- "$text" err || die "$* did not say '$text'"
}

case $4 in
volume)
  need adrenalmnist3d.npz
  config=volume
  for set in train test; do
    "$millrace" pack --x "$from/adrenalmnist3d.npz" --x-name ${set}_images --y-name ${set}_labels --layout no_channels --out . \
      --prefix $set >out 2>err || die "pack ended with $?"
  done
  data=(--data.train train-*.h5 --data.valid test-*.h5)
  run volume "${data[@]}"
  # 0.768 of the volumes are of the larger class.
  below 0.775 "$(figure valid_accuracy)" || die "accuracy $(figure valid_accuracy)"
  refused "data.subvolume: 29 is more than the 28" "${data[@]}" --data.subvolume 29 24 24
  refused "data.subvolume: it has 2 extents" "${data[@]}" --data.subvolume 24 24
  refused "data.flip_axes does nothing without" "${data[@]}" --data.augment off
  refused "data.channels: there is no channel 1" "${data[@]}" --data.channels 0-1
  refused "data.channels: '2-1' ends before" "${data[@]}" --data.channels 2-1
  refused "data.mean has 2 values, data.std 1" "${data[@]}" --data.mean 0 1 --data.std 1
  refused "data.mean and data.std have 2 values" "${data[@]}" --data.mean 0 1 --data.std 1 1
  ;;
fields)
  need ch2bet.nii.gz
  need brodmann.nii.gz
  config=fields
  guess=$("$make_fields" "$from/ch2bet.nii.gz" "$from/brodmann.nii.gz" .) || die "make_fields"
  data=(--data.train train.h5 --data.valid valid.h5)
  run fields "${data[@]}"
  grep -q "2 concatenated data sets: /t1, /edge" run/run.json || die "run.json does not name the data sets"
  below "$(figure valid_loss)" "$(awk -v g="$guess" 'BEGIN { print g / 2 }')" || die "loss $(figure valid_loss), of a guess $guess"
  # Its own mean and deviation, and one of the inputs alone.
  run fields "${data[@]}" --data.channels 0 --data.mean 3.5 --data.std 1 --train.epochs 1 --run.resume never
  below "$(figure valid_loss)" 1 || die "one channel: loss $(figure valid_loss)"
  # A run goes on with another transform only with a warning.
  run fields "${data[@]}" --data.channels 0 --data.mean 60 --data.std 30 --data.transform none --train.epochs 2
  grep -q "resuming with another .*data.transform (log1p then, none now)" out err || die "no warning of another transform"
  ;;
esac
