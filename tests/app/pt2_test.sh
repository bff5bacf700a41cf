#!/bin/bash
# Networks that PyTorch has exported: they train with their weights, stop, resume and are evaluated like the others.
# Usage: pt2_test.sh MILLRACE MPIEXEC train|archive|alone|weights|language|refused|losses|sgd_on_two|adamw_on_two|synchronised
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"
fixtures=$root/tests/fixtures/pt2

network() {
  cp "$fixtures/$1.pt2" net.pt2
  cat >net.cfg <<END
[data]
train = synthetic:images:rows=192,shape=$2,classes=5,seed=1
valid = synthetic:images:rows=64,shape=$2,classes=5,seed=2
[model]
name = pt2
file = net.pt2
[train]
global_batch = 16
[optim]
lr = 0.01
schedule = constant
END
}

case_train() {
  network cnn 12x14x3
  expect_exit 0 "$millrace" inspect net.pt2
  expect_line 'input x: float32 \(any, 3, 12, 14\)'
  expect_no_line 'not supported'
  expect_exit 0 train 2 whole --train.steps 6
  expect_line 'weights of net\.pt2: 12 parameters'
  expect_lines 1 'does not use 2 of its parameters: unused'
  # The weights are those of the file on any number of ranks, also if each has only a part of them.
  expect_exit 0 train 2 whole_zero --train.steps 6 --optim.zero 1
  expect_same_metrics whole whole_zero
  expect_exit 0 train 2 other --train.steps 6 --run.seed 7 --train.epochs 1 --data.shuffle off
  expect_exit 0 train 2 again --train.steps 6 --run.seed 8 --train.epochs 1 --data.shuffle off
  expect_same_metrics other again
  expect_exit 0 train 2 fresh --train.steps 6 --run.seed 8 --data.shuffle off --model.init fresh
  expect_no_line 'weights of'
  ! cmp -s other/metrics.jsonl fresh/metrics.jsonl || complain "fresh weights are those of the archive"
  # A run that resumes has the weights of its checkpoint.
  expect_exit 0 train 2 parts --train.steps 3
  expect_exit 0 train 2 parts --train.steps 6
  expect_no_line 'weights of'
  expect_same_metrics whole parts
  expect_exit 0 run_on 1 eval "$(newest_checkpoint whole)" --data.valid synthetic:images:rows=64,shape=12x14x3,classes=5,seed=2
  expect_line "validation loss $(LC_ALL=C printf %.4f "$(summary whole valid_loss)")"
  # Weights go home under PyTorch's names, with what the network does not train, and take the place of a checkpoint.
  expect_exit 0 run_on 1 export whole
  expect_exit 0 python3 -c "import json; f=open('whole/model.safetensors','rb'); h=json.loads(f.read(int.from_bytes(f.read(8),'little')))
for k,v in sorted(h.items()): print(k, v.get('shape'), v.get('dtype'))"
  expect_line '^unused\.weight \[[0-9, ]+\] F32'
  expect_line 'num_batches_tracked \[\] I64'
  expect_exit 0 run_on 2 eval whole/model.safetensors --data.valid synthetic:images:rows=64,shape=12x14x3,classes=5,seed=2
  expect_line "validation loss $(LC_ALL=C printf %.4f "$(summary whole valid_loss)")"
  expect_exit 0 train 2 tuned --train.steps 1 --model.weights whole/model.safetensors
  expect_line 'weights from whole/model\.safetensors: 12 of 12 parameters'
}

# The archive with trained weights takes the place of the old one.
case_archive() {
  network cnn 12x14x3
  expect_exit 0 train 1 run --train.steps 2 --train.evaluate off
  check_archive run
  cp run/model.pt2 trained.pt2
  expect_exit 0 train 2 same --train.steps 1 --model.file trained.pt2 --optim.lr 0 --optim.weight_decay 0 --checkpoint.safetensors on
  expect_line 'weights of trained\.pt2: 12 parameters'
  expect_says 3 'net\.pt2 exists and was not written by millrace' run_on 2 export run --format pt2 --output net.pt2
}

# check_archive RUN: net.pt2 with the weights of RUN. Its records have the bytes of the safetensors file; all others, and
# their order, are those of net.pt2.
check_archive() {
  expect_exit 0 run_on 2 export "$1" --format pt2
  expect_line "wrote $1/model\.pt2"
  expect_exit 0 run_on 1 export "$1"
  expect_exit 0 python3 - "$1" <<'END'
import json, sys, zipfile
old, new = zipfile.ZipFile("net.pt2"), zipfile.ZipFile(sys.argv[1] + "/model.pt2")
assert new.testzip() is None
assert old.namelist() == new.namelist()
f = open(sys.argv[1] + "/model.safetensors", "rb")
n = int.from_bytes(f.read(8), "little")
header = json.loads(f.read(n))
config = next(name for name in old.namelist() if name.endswith("weights_config.json"))
places = {entry["path_name"]: header[name]["data_offsets"] for name, entry in json.loads(old.read(config))["config"].items()}
changed = 0
for name in old.namelist():
    begin, end = places.get(name.split("/")[-1], (0, 0))
    f.seek(8 + n + begin)
    expected = f.read(end - begin) if "/weights/weight_" in name else old.read(name)
    assert new.read(name) == expected, name
    changed += expected != old.read(name)
assert changed > 0
END
}

# A checkpoint holds the network: the archive is needed to begin a run, and for a copy with other weights.
case_alone() {
  local line data=synthetic:images:rows=64,shape=12x14x3,classes=5,seed=2
  network cnn 12x14x3
  expect_exit 0 train 1 run --train.steps 2 --checkpoint.safetensors on
  cp run/model.safetensors first.safetensors
  expect_exit 0 run_on 1 eval run
  line=$(cat out)
  expect_exit 0 run_on 1 predict run --data.valid $data --output with.csv
  expect_exit 0 train 1 whole --train.steps 4
  mv net.pt2 away
  expect_exit 0 run_on 2 eval run
  expect_equal "evaluation without the archive" "$line" "$(cat out)"
  expect_exit 0 run_on 1 eval first.safetensors --data.valid $data
  expect_exit 0 run_on 1 predict run --data.valid $data --output without.csv
  expect_same_files with.csv without.csv
  expect_exit 0 run_on 1 export run
  expect_same_files first.safetensors run/model.safetensors
  expect_says 3 'net\.pt2 is not there any more, of which --format pt2 makes a copy' run_on 2 export run --format pt2
  cp "$fixtures/mlp.pt2" net.pt2
  expect_says 3 'net\.pt2 is another network now' run_on 1 export run --format pt2
  rm net.pt2
  expect_says 2 'there is no net\.pt2' train 1 other --train.steps 1
  expect_exit 0 train 1 run --train.steps 4  # it resumes
  expect_same_metrics whole run
  expect_exit 0 run_on 1 export run
}

# model.weights takes the values of an archive: into the same network they are those of model.init = archive, with its
# running statistics; into another one, those that fit.
case_weights() {
  local data=synthetic:images:rows=64,shape=12x14x3,classes=5,seed=2
  network cnn 12x14x3
  expect_exit 0 train 1 archive --train.steps 2
  expect_exit 0 train 2 weights --train.steps 2 --model.init fresh --model.weights net.pt2
  expect_line 'weights from net\.pt2: 12 of 12 parameters'
  expect_exit 0 train 1 again --train.steps 2 --model.init fresh --model.weights net.pt2
  expect_same_metrics archive again
  expect_exit 0 run_on 1 export archive --format pt2
  expect_exit 0 train 1 trained --train.steps 1 --model.init fresh --model.weights archive/model.pt2 --checkpoint.safetensors on
  cp "$fixtures/mlp.pt2" other.pt2
  expect_says 2 'model\.weights: other\.pt2 does not fit the network: it lacks ' train 1 other --model.weights other.pt2
  head -c 3000 net.pt2 >short.pt2
  expect_says 3 'short\.pt2 cannot be read as an exported network' train 2 short --model.weights short.pt2
  # inspect says what a file of weights is for.
  expect_says 0 '^trained/model\.safetensors: weights of step 1$' "$millrace" inspect trained/model.safetensors
  expect_line '^  written by millrace .*; samples 12x14x3 uint8, 5 classes'
  expect_line '^  loss = cross_entropy\('
  expect_line 'model\.file = net\.pt2'
  expect_says 0 'F32 \(5, ' "$millrace" inspect --tensors trained/model.safetensors
  head -c 900 trained/model.safetensors >short.safetensors
  expect_says 3 'short\.safetensors is damaged' "$millrace" inspect short.safetensors
}

# A tied table, and positions of which the data has only the first: the file that goes home has all of the archive.
case_language() {
  cp "$fixtures/gpt.pt2" net.pt2
  python3 -c "open('t.bin', 'wb').write(bytes(i * 7 % 40 for i in range(2600)))"
  expect_exit 0 run_on 1 pack --x t.bin --tokens uint8 --context 12 --out data
  printf '[data]\ntrain = data/*.h5\nsample = tokens\nwindow = 12\ntoken_labels = every\nvocabulary = 40\n' >net.cfg
  printf '[model]\nname = pt2\nfile = net.pt2\n[train]\nsteps = 2\nglobal_batch = 8\n[optim]\nlr = 0\nweight_decay = 0\n' >>net.cfg
  expect_exit 0 train 2 run --checkpoint.safetensors on
  expect_no_line 'warning'
  # The network of the archive has the same tensors with the same values: its records are compared with the file's.
  expect_exit 0 python3 - <<'END'
import json, zipfile
z = zipfile.ZipFile("net.pt2")
read = lambda end: z.read(next(n for n in z.namelist() if n.endswith(end)))
archive = json.loads(read("model_weights_config.json"))["config"]
f = open("run/model.safetensors", "rb")
n = int.from_bytes(f.read(8), "little")
header = json.loads(f.read(n))
assert header.keys() - {"__metadata__"} == archive.keys(), header.keys() ^ archive.keys()
for name, entry in archive.items():
    b, e = header[name]["data_offsets"]
    f.seek(8 + n + b)
    assert header[name]["shape"] == [s["as_int"] for s in entry["tensor_meta"]["sizes"]], name
    assert f.read(e - b) == read("/" + entry["path_name"]), name
END
  expect_exit 0 run_on 1 eval run/model.safetensors --data.valid 'data/*.h5'
  expect_exit 0 train 1 more --train.steps 1 --optim.lr 0.01
  check_archive more
}

case_refused() {
  network cnn 12x14x3
  expect_says 2 'there is no gone\.pt2 .*torch\.export\.save' train 2 run --model.file gone.pt2
  expect_says 2 'model\.file is not set' train 1 run --model.file ''
  expect_says 2 'takes samples of \(N, 3, 12, 14\), but the data has .*12x12x3' train 1 run \
    --data.train synthetic:images:rows=64,shape=12x12x3,classes=5,seed=1 --data.valid ''
  expect_says 2 'model\.file: it is for model\.name = pt2' train 1 run --model.name resnet
  head -c 30000 net.pt2 >half.pt2
  expect_says 3 'half\.pt2 cannot be read as an exported network' train 2 run --model.file half.pt2
  cp "$fixtures/versions/v2.8.0_static.pt2" old.pt2
  expect_says 3 'PyTorch 2\.8\.0.*which pickles the weights' train 1 run --model.file old.pt2
  expect_says 3 'pickles the weights' "$millrace" inspect old.pt2
  cp "$fixtures/refused.pt2" other.pt2
  expect_says 2 'not supported yet: aten\.erf\.default \(1 node, .erf., .*pt2_more\.py:[0-9]+\)' train 2 run \
    --model.file other.pt2
  expect_no_file run/checkpoints
  # Weights that were damaged since: no rank trains with them.
  network mlp 5x4x1
  printf 'damaged!' | dd of=net.pt2 bs=1 seek=$(grep -abo 'weights/weight_0' net.pt2 | head -n 1 | cut -d : -f 1 | awk '{ print $1 + 80 }') conv=notrunc 2>/dev/null
  expect_says 3 'net\.pt2 is damaged.*weight_0' train 2 run
}

# Ten losses of several networks, as PyTorch has computed them; with dropout, their mean and deviation. RANKS [KIND]
compare_losses() { expect_exit 0 python3 "$root/tests/parity/pt2_runs.py" "$millrace" "$mpiexec" "$@"; }
case_losses() {
  compare_losses 1
  expect_lines 33 'largest error of a loss|standard errors'
}
case_sgd_on_two() {
  compare_losses 2 sgd
  expect_lines 16 'largest error of a loss'
}
case_adamw_on_two() {
  compare_losses 2 adamw
  expect_lines 16 'largest error of a loss'
  compare_losses 2 dropout
  expect_lines 1 'standard errors'
}
# Batch norms over all ranks, as PyTorch normalises the whole batch.
case_synchronised() {
  compare_losses 2 synchronised
  expect_lines 4 'largest error of a loss'
  compare_losses 3 synchronised
  expect_lines 4 'largest error of a loss'
}

run_case "$3"
