#!/bin/bash
# The networks for tokens and images, with the configurations in inputs/: they train, stop, resume and are evaluated
# like the others.
# Usage: networks_test.sh MILLRACE MPIEXEC language|generate|images|pixels|voxels|winograd|export|onnx|finetune
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"

case_language() {
  local net
  awk 'BEGIN { for (i = 0; i < 3000; ++i) printf "the cat number %d sat on the mat %d. ", i % 7, i * 3 % 5 }' >text.txt
  expect_exit 0 run_on 1 pack --x text.txt --tokens uint8 --context 512 --valid-fraction 0.1 --out data/text
  for net in gpt llama; do
    set -- train -c "$root/inputs/text-$net.cfg" --data.window 32 --data.stride 32 --train.global_batch 16 \
      --optim.schedule constant --optim.warmup 0
    expect_exit 0 run_on 2 "$@" --run.dir $net --train.steps 20
    expect_line 'validation loss .* of [0-9]{4,}, perplexity [0-9.]+$'  # a label at each position; there are some 300 samples
    expect_number "loss of $net" "$(summary $net valid_loss)" "<" 2.5  # ln(128) is 4.85
  done
  expect_exit 0 run_on 2 "$@" --run.dir parts --train.steps 10 --train.evaluate off
  expect_exit 0 run_on 2 "$@" --run.dir parts --train.steps 20
  expect_same_metrics llama parts
  cp "$(newest_checkpoint parts)" model.h5
  expect_exit 0 run_on 1 eval model.h5 --data.train gone.h5
  expect_line "validation loss $(LC_ALL=C printf %.4f "$(summary llama valid_loss)")"
  set -- "$@" --train.steps 2
  expect_exit 2 run_on 1 "$@" --run.dir other --data.token_labels last
  expect_line 'llama needs tokens with a label each.*data\.token_labels = every'
  expect_exit 2 run_on 1 "$@" --run.dir other --model.size 3B
  expect_line "llama has no size '3B'.*tiny, 1\.1B"
  expect_exit 2 run_on 1 "$@" --run.dir other --model.heads 3
  expect_line 'model\.heads: 3 heads do not divide a width of 128'
  # As inputs/gpt2-124m.cfg says. A packed row holds one window.
  head -c 90000 text.txt >train.bin
  expect_exit 0 run_on 1 pack --x train.bin --tokens uint16 --context 1024 --valid-fraction 0.1 --out data/openwebtext
  expect_exit 0 "$millrace" plan -c "$root/inputs/gpt2-124m.cfg" --run.device cpu --run.precision fp32 --model.blocks 1 \
    --train.global_batch 4 --train.micro_batch 1
  expect_line '^data: [0-9]+ samples of 1024 '
  expect_exit 0 "$millrace" train -c "$root/inputs/convnext-imagenet.cfg" --print-config
}

# Text in, text out: a tokenizer goes from pack through the checkpoint to generate.
case_generate() {
  local text=$root/tests/fixtures/text
  set -- pack --x one.txt two.txt --tokenizer gpt2 --vocab "$text/vocab.json" --merges "$text/merges.txt" --context 256
  awk 'BEGIN { for (i = 0; i < 1500; ++i) print "The cat sat on the mat, and the dog ran." }' | tee one.txt >two.txt
  expect_exit 0 run_on 2 "$@" --out data/text --end-of-text --valid-fraction 0.1
  expect_line 'tokenized .* [0-9]+ tokens'
  expect_no_file data/text/train-0.tokens.tmp
  expect_says 2 '--tokenizer gpt2: give its file with --merges' run_on 1 pack --x one.txt --tokenizer gpt2 --vocab v --context 8 --out x
  expect_says 2 '--end-of-text is for texts' run_on 1 pack --x one.txt --tokens uint8 --end-of-text --context 8 --out x
  expect_says 2 'no token <.endoftext.>' run_on 1 pack --x one.txt --tokenizer bytes --end-of-text --context 8 --out x
  expect_says 3 'vocab\.json is not a tokenizer' run_on 1 pack --x one.txt --tokenizer "$text/vocab.json" --context 8 --out x
  expect_says 3 'cannot open .*gone' run_on 1 pack --x one.txt --tokenizer gone --context 8 --out x
  printf 'caf\351 %s' "$(cat one.txt)" >latin.txt
  expect_says 0 'warning: latin\.txt: 1 sequences are not UTF-8' run_on 1 pack --x latin.txt "${@:5}" --out latin
  expect_exit 0 "$millrace" inspect latin/train-00000.h5 --sample tokens --window 8
  expect_line '701 classes'

  set -- train -c "$root/inputs/text-gpt.cfg" --data.window 64 --data.stride 64 --train.global_batch 16 \
    --optim.schedule constant --optim.warmup 0
  expect_exit 0 run_on 1 "$@" --train.steps 40 --run.dir gpt
  rm -r data  # the checkpoint is enough
  expect_exit 0 "$millrace" generate gpt --prompt 'The cat' --temperature 0 --tokens 60
  expect_line '^The cat sat .*on the' out
  expect_line '60 tokens in .* tokens/s' err
  mv out greedy
  expect_exit 0 "$millrace" generate "$(newest_checkpoint gpt)" --prompt 'The cat' --top-k 1 --tokens 60 --seed 7
  expect_same_files out greedy
  expect_exit 0 "$millrace" generate gpt --temperature 5 --tokens 40 --seed 7
  mv out seven
  expect_exit 0 "$millrace" generate gpt --temperature 5 --tokens 40 --seed 7
  expect_same_files out seven
  expect_exit 0 "$millrace" generate gpt --temperature 5 --tokens 40 --seed 8
  cmp -s out seven && complain "two seeds gave the same text"
  expect_says 2 'runs on one rank, but 2 were started' run_on 2 generate gpt
  expect_says 2 'remove --tokenizer' "$millrace" generate gpt --tokenizer bytes
  expect_says 2 'holds another network' "$millrace" generate gpt --model.layers 'embedding 8' --model.layers 'linear outputs axis=last'
  expect_says 2 'nothing to generate with' "$millrace" generate
  expect_says 2 'the prompt has 0 tokens' "$millrace" generate gpt --prompt ''
  expect_says 3 'no intact checkpoint in other' "$millrace" generate other

  expect_exit 0 "$millrace" pack --x one.txt --tokens uint8 --context 64 --out data/text
  expect_exit 0 run_on 1 "$@" --run.dir bytes --train.steps 1 --train.evaluate off
  expect_says 2 'has no tokenizer' "$millrace" generate bytes
  expect_says 2 "the prompt has the token 195 .* below 117" "$millrace" generate bytes --tokenizer bytes --prompt 'é'
  expect_exit 0 "$millrace" generate bytes --tokenizer bytes --prompt a --tokens 5
  printf '[data]\ntrain = synthetic:images:rows=64,shape=4x4x1,classes=4\n' >images.cfg
  expect_exit 0 "$millrace" train -c images.cfg --run.dir images --train.epochs 1
  expect_says 2 'is not a language model' "$millrace" generate images
}

case_images() {
  local data=synthetic:images:rows=256,shape=16x16x1,classes=4
  set -- train -c "$root/inputs/fashion-vit.cfg" --data.train $data --data.valid $data --train.global_batch 32 \
    --data.augment off
  expect_exit 0 run_on 2 "$@" --run.dir vit --train.steps 60 --model.drop_path 0.1 --model.dropout 0.1
  expect_number "loss of vit" "$(summary vit valid_loss)" "<" 1  # ln(4) is 1.39
  expect_exit 2 run_on 1 "$@" --run.dir other --model.patch 17
  expect_line 'a window of 17 does not fit'
  expect_exit 0 run_on 2 "$@" --run.dir convnext --train.steps 4 --model.name convnext --model.size tiny \
    --model.width 8 --model.patch 2
  expect_line 'validation loss'
}

# train_unet CONFIG SHAPE UNIT OTHERS...: U-Net on samples with a label at each position, on one and on two ranks, and resumed.
train_unet() {
  local data=synthetic:images:rows=160,seed=3,shape=$2,classes=2,labels=pixel config=$1 unit=$3 loss ranks steps
  shift 3
  set -- train -c "$root/inputs/$config.cfg" --data.train "$data" --model.width 4 --optim.lr 3e-3 \
    --train.global_batch 8 --optim.warmup 0 --optim.schedule constant --run.threads 1 "$@"
  for ranks in 1 2; do
    expect_exit 0 run_on $ranks "$@" --data.valid "$data" --model.blocks 2 --run.dir on$ranks --train.steps 60
    expect_line "validation loss .*, top-1 .* of [0-9]+ $unit, mean IoU [0-9.]+, mean Dice [0-9.]+\$"
    loss=$(summary on$ranks valid_loss)
    expect_number "loss of $unit on $ranks ranks" "$loss" "<" 0.6  # ln(2) is 0.69
  done
  for steps in 25 60; do
    expect_exit 0 run_on 2 "$@" --data.valid "$data" --model.blocks 2 --run.dir parts --train.steps $steps
  done
  expect_same_metrics on2 parts
  cp "$(newest_checkpoint on2)" model.h5
  expect_exit 0 run_on 1 eval model.h5 --data.train gone.h5
  expect_line "validation loss $(LC_ALL=C printf %.4f "$loss").* of [0-9]+ $unit, mean IoU [0-9.]+, mean Dice [0-9.]+\$"
  expect_exit 2 run_on 1 "$@" --run.dir other --train.evaluate off --model.blocks 6
  expect_line 'model\.name: a unet halves its input 6 times \(model\.blocks\)'
  set -- "$@" --model.blocks 2
  expect_exit 2 run_on 1 "$@" --run.dir other --train.evaluate off --model.name mlp
  expect_line 'end with .conv 2 1 bias=on'
  expect_exit 3 run_on 2 "$@" --run.dir other --data.valid "${data/classes=2/classes=4}"
  expect_line 'data\.valid contains label 3, but data\.train has only 2 classes'
}

case_pixels() {
  train_unet brain-slices 16x20x3 pixels --data.crop_pad 1 --data.cutout 3
  expect_exit 2 run_on 1 train -c "$root/inputs/brain-slices.cfg" --data.train synthetic:images:rows=8,shape=16x16x1 \
    --train.evaluate off
  expect_line 'unet needs a label at each position.* one label a row'
}

# tensors FILE: the names and shapes in the header of a safetensors file, one a line; values FILE NAME: a tensor's checksum.
tensors() {
  python3 -c "import json,sys; f=open(sys.argv[1],'rb'); h=json.loads(f.read(int.from_bytes(f.read(8),'little')))
for k,v in h.items(): print(k, v.get('shape'), v.get('dtype'))" "$1"
}
values() {
  python3 -c "import json,sys; f=open(sys.argv[1],'rb'); n=int.from_bytes(f.read(8),'little'); b,e=json.loads(f.read(n))[sys.argv[2]]['data_offsets']
import zlib; f.seek(8+n+b); print(zlib.crc32(f.read(e-b)))" "$1" "$2"
}

# The weights leave in PyTorch's names and order. The file takes the place of a checkpoint.
case_export() {
  local data=synthetic:images:rows=128,shape=8x8x3,classes=4 line
  set -- train -c /dev/null --data.train $data --data.valid "$data,seed=2" --model.name resnet --model.depth 8 --train.global_batch 32
  expect_exit 0 run_on 2 "$@" --run.dir run --train.epochs 3 --optim.ema 0.9 --checkpoint.safetensors on
  expect_exit 0 tensors run/model.safetensors
  expect_line '^conv1\.weight \[16, 3, 3, 3\] F32'
  expect_line '^layer2\.0\.downsample\.1\.num_batches_tracked \[\] I64'
  expect_line '^bn1\.running_var \[16\] F32'
  expect_equal "steps" "$(python3 -c "import zlib; print(zlib.crc32((12).to_bytes(8, 'little')))")" "$(values run/model.safetensors bn1.num_batches_tracked)"
  cp run/model.safetensors first.safetensors
  expect_exit 0 run_on 1 export run
  expect_line 'wrote run/model\.safetensors .*step 12'
  expect_same_files first.safetensors run/model.safetensors
  expect_exit 0 run_on 1 export "$(newest_checkpoint run)" --output here.safetensors
  expect_same_files first.safetensors here.safetensors
  expect_exit 0 run_on 2 eval run
  line=$(cat out)
  expect_exit 0 run_on 2 eval first.safetensors --data.train gone.h5
  expect_equal "evaluation of the export" "$line" "$(cat out)"
  echo precious >mine.safetensors
  expect_says 3 'mine\.safetensors exists and was not written by millrace' run_on 2 export run --output mine.safetensors
  expect_equal "a foreign file" precious "$(cat mine.safetensors)"
  expect_says 3 'cannot create none/x\.safetensors' run_on 1 export run --output none/x.safetensors
  expect_says 2 "'keras' is not a format" run_on 1 export run --format keras
  expect_says 2 'does not come from a \.pt2 file' run_on 2 export run --format pt2
  expect_says 2 'has the format of an export already' run_on 1 export first.safetensors
  expect_says 3 'damaged or not a safetensors file' run_on 2 eval mine.safetensors
  head -c 60000 first.safetensors >cut.safetensors
  expect_says 3 'cut\.safetensors is damaged' run_on 1 eval cut.safetensors
}

# The network leaves as an ONNX file (tests/onnx looks into it), from a checkpoint or from an export of the weights.
case_onnx() {
  local data=synthetic:images:rows=64,shape=8x8x3,classes=4
  expect_exit 0 run_on 2 train -c /dev/null --data.train $data --model.name resnet --model.depth 8 --train.global_batch 32 \
    --run.dir run --optim.ema 0.9 --train.evaluate off --train.steps 4
  expect_exit 0 run_on 2 export run --format onnx
  grep -q 'install libonnx-dev' err && { echo "skipped: this build has no libonnx"; exit 77; }
  expect_line 'wrote run/model\.onnx .*step 4'
  expect_equal "the beginning of the file" '0808 1208 millrace' \
    "$(head -c 4 run/model.onnx | od -An -tx1 | tr -d ' ' | sed 's/..../& /') $(head -c 12 run/model.onnx | tail -c 8)"
  for words in BatchNormalization layer1.0.conv1.weight millrace.config GlobalAveragePool; do
    grep -aq "$words" run/model.onnx || complain "run/model.onnx has no $words"
  done
  cp run/model.onnx first.onnx
  expect_exit 0 run_on 1 export run
  expect_exit 0 run_on 1 export run/model.safetensors --format onnx --output second.onnx
  expect_same_files first.onnx second.onnx
  echo precious >mine.onnx
  expect_says 3 'mine\.onnx exists and was not written by millrace' run_on 2 export run --format onnx --output mine.onnx
  expect_equal "a foreign file" precious "$(cat mine.onnx)"
  expect_says 3 'cannot create none/x\.onnx' run_on 1 export run --format onnx --output none/x.onnx
  expect_equal "temporary files" "" "$(find . -name '*.tmp')"
}

# A new run begins with the weights of another one, with another number of classes and frozen layers.
case_finetune() {
  local data=synthetic:images:rows=128,shape=8x8x3 new name
  set -- train -c net.cfg --train.global_batch 32 --checkpoint.safetensors on
  printf '[model]\nname = resnet\ndepth = 8\n[train]\nepochs = 1\n' >net.cfg
  expect_exit 0 run_on 1 "$@" --data.train "$data,classes=10" --run.dir old
  cp "$(newest_checkpoint old)" old.h5
  set -- "$@" --data.train "$data,classes=4,seed=3"
  for name in old.h5 old/model.safetensors; do
    new=new-$(basename $name)
    expect_exit 0 run_on 2 "$@" --run.dir "$new" --model.weights $name --model.weights_skip 'fc.*' \
      --train.freeze 'conv1.* layer1.*' --optim.zero 1 --optim.name adamw
    expect_line "weights from $name: 27 of 29 parameters" out
    expect_equal "a frozen layer" "$(values old/model.safetensors layer1.0.conv2.weight)" "$(values "$new/model.safetensors" layer1.0.conv2.weight)"
    [ "$(values old/model.safetensors layer2.0.conv2.weight)" != "$(values "$new/model.safetensors" layer2.0.conv2.weight)" ] || complain "layer2 did not train"
  done
  expect_same_metrics new-old.h5 new-model.safetensors
  expect_exit 0 run_on 1 "$@" --run.dir new-old.h5 --model.weights gone --model.weights_skip 'fc.*' --train.epochs 2 \
    --optim.name adamw  # it resumes, and reads no weights
  expect_line '^resumed at step 4 of 8' out
  expect_says 2 'a new run in old removes .*copy the file' run_on 2 "$@" --run.dir old --run.resume never --model.weights "$(newest_checkpoint old)"
  expect_says 2 'a new run in old removes or renames old/model\.safetensors' run_on 2 "$@" --run.dir old --run.resume never --model.weights old/model.safetensors
  # An export of an old run does not outlive it in its folder.
  expect_exit 0 run_on 1 "${@:1:5}" --data.train "$data,classes=4" --run.dir new-old.h5 --run.resume never
  expect_no_file new-old.h5/model.safetensors
  [ -s new-old.h5/model.safetensors.old ] || complain "the weights of the old run are lost"
  mkdir -p mine && echo precious >mine/model.safetensors
  expect_says 3 'mine/model\.safetensors exists and was not written by millrace' run_on 2 "$@" --run.dir mine
  expect_equal "a foreign file" precious "$(cat mine/model.safetensors)"
  set -- "$@" --run.dir other
  expect_says 2 'old\.h5 does not fit the network: fc\.weight is \(10, 64\), not \(4, 64\).*weights_skip = fc\.\*' run_on 2 "$@" --model.weights old.h5
  expect_says 2 'fc\.weight is \(10, 64\)' run_on 1 "$@" --model.weights old/model.safetensors
  expect_says 2 'lacks layer1\.1\..* and [0-9]+ more' run_on 1 "$@" --model.weights old/model.safetensors --model.depth 14
  expect_exit 0 run_on 2 plan "${@:2}" --model.weights old.h5 --model.weights_skip 'fc.*'
  expect_line 'model\.weights: old\.h5: 27 of 29 parameters \(the others'
  expect_says 2 "nothing\.\* matches neither" run_on 1 "$@" --model.weights old.h5 --model.weights_skip 'fc.* nothing.*'
  expect_says 2 'leave nothing of old\.h5' run_on 1 "$@" --model.weights old.h5 --model.weights_skip '*'
  expect_says 2 'weights_skip: it is for model\.weights' run_on 1 "$@" --model.weights_skip 'fc.*'
  printf 'PK\003\004%60s' x >torch.safetensors
  expect_says 3 'a file of torch\.save\(\).*save_file' run_on 1 "$@" --model.weights torch.safetensors
  expect_says 3 'there is no file gone' run_on 2 "$@" --model.weights gone
  expect_says 2 'train\.freeze: conv9\.\* matches no parameter' run_on 1 "$@" --train.freeze 'conv9.*'
  expect_says 2 'train\.freeze: all parameters are frozen' run_on 1 "$@" --train.freeze '*'
  expect_says 2 'model\.init: it is for model\.name = pt2' run_on 1 "$@" --model.init fresh
  mv new-old.h5 plain
  expect_says 3 'model\.weights: plain holds no model\.safetensors.*plain/checkpoints/step' run_on 1 "$@" --model.weights plain
  expect_no_file other/metrics.jsonl
  # Groups, heads and epsilons change the function, but no shape.
  for name in 2 4; do
    printf '[model]\nname = layers\nlayers = conv 8 3\nlayers = groupnorm %d\nlayers = linear outputs\n' $name >groups$name.cfg
  done
  set -- train --data.train "$data,classes=4" --train.global_batch 64 --train.epochs 1
  expect_exit 0 run_on 1 "$@" -c groups2.cfg --run.dir groups2 --checkpoint.safetensors on
  for name in "$(newest_checkpoint groups2)" groups2/model.safetensors; do
    expect_says 2 'is of another network: .* has groups=2 there, groups=4 here' run_on 2 "$@" -c groups4.cfg --run.dir other --model.weights "$name"
    expect_exit 0 "$millrace" plan "${@:2}" -c groups2.cfg --model.weights "$name"
  done
}

# The methods of convolutions: by fixed rules, and timed at the start.
case_winograd() {
  set -- -c /dev/null --run.device cpu --data.train synthetic:images:rows=64,shape=16x16x3,classes=4 --model.name resnet \
    --model.depth 20 --train.global_batch 16 --run.threads 1 --optim.schedule constant --optim.warmup 0
  export XDG_CACHE_HOME=$PWD/cache
  expect_exit 0 "$millrace" plan "$@"
  grep -q winograd out || skip "this processor has no kernels for it"
  expect_line 'winograd F\(4x4\):.*, backward data winograd F\(4x4\):.*, backward weights winograd F\(4x4\):'
  expect_exit 0 "$millrace" plan "$@" --cpu.winograd off
  expect_no_line 'winograd F'
  expect_exit 0 run_on 2 train "$@" --run.dir whole --train.steps 6
  expect_exit 0 run_on 2 train "$@" --run.dir parts --train.steps 3
  expect_exit 0 run_on 2 train "$@" --run.dir parts --train.steps 6
  expect_same_metrics whole parts
  expect_no_file cache/millrace/millrace-*.json
  expect_exit 0 run_on 2 train "$@" --run.dir timed --train.steps 3 --run.deterministic off
  expect_file cache/millrace/millrace-*.json
  # A checkpoint says how convolutions were computed, also in 16 bits: fp16 is computed in float32.
  expect_exit 0 run_on 2 train "$@" --run.dir half --run.precision fp16 --train.steps 1
  expect_exit 0 run_on 2 train "$@" --run.dir half --run.precision fp16 --train.steps 2 --cpu.winograd off
  expect_line 'resuming with different convolutions \(Winograd then, direct now\)'
  # The next start takes the choices from the file.
  sed -i 's/"plan":"[^"]*"/"plan":"F(2x2)=0.00125|direct=0.0025"/g; s/,"other_work":[^,}]*//g; s/"other_work":[^,}]*,//g' cache/millrace/millrace-*.json
  expect_exit 0 run_on 2 plan "$@" --run.deterministic off
  expect_line 'winograd F\(2x2\):.*, backward data winograd F\(2x2\):.*, backward weights winograd F\(2x2\):.*; timed: forward F\(2x2\) 1.25 ms, then direct 2.5; data F\(2x2\) 1.25 ms'
  # What is not a plan cache is not overwritten.
  echo notes >"$(echo cache/millrace/millrace-*.json)"
  expect_exit 0 run_on 2 plan "$@" --run.deterministic off
  expect_line 'is not used \(it is not a plan cache'
  expect_exit 0 grep -qx notes cache/millrace/millrace-*.json
  expect_exit 0 run_on 2 train "$@" --run.dir again --train.steps 3 --run.deterministic off --cpu.autotune off
}

case_voxels() { train_unet brain-boxes 10x12x12x2 voxels --data.subvolume 8 8 8; }

run_case "$3"
