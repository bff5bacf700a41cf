#!/bin/bash
# The command line: help, exit codes and messages of each command, and the way from arrays and tables
# through pack, inspect and plan to a run.
# Usage: cli_test.sh MILLRACE MPIEXEC solo|ranks|data|readers|inputs|gpu_plan
set -euo pipefail
source "$(dirname "$0")/lib.sh" "$1" "$2"

printf '[train]\nstep = 5\n' >typo.cfg
printf '[data]\ntrain = none-*.h5\n' >data.cfg

# A process without mpirun: help, errors, damaged files, Slurm without PMIx, --print-config.
case_solo() {
  local command group bench words
  expect_says 0 '^usage: millrace COMMAND' "$millrace" --help
  expect_says 0 '^millrace 0\.' "$millrace" --version
  expect_says 2 "^error: .*'trian'.*\<train\>" "$millrace" trian
  expect_says 2 "^error: .*'evaluate'.*did you mean eval\?" "$millrace" evaluate
  expect_says 2 "^error: .*'fit'.*did you mean train\?" "$millrace" fit
  expect_says 2 "^error: .*'infer'.*did you mean predict\?" "$millrace" infer
  expect_says 0 '^usage: millrace pack' "$millrace" help pack
  for command in train eval predict generate pack inspect plan diagnose report tune scaling top bench job; do
    expect_says 0 "usage: millrace $command" "$millrace" $command --help
    awk '/^  (-., )?--[a-z]/ { n++; getline; if ($0 !~ /^      [^ ]/) exit 1 } END { exit n == 0 }' out ||
      complain "expected a description below each option of $command"
    expect_no_line 'millrace .* --help' out  # the help is complete: it refers to no other command
  done
  expect_exit 0 "$millrace" train --help
  expect_number "lines of train --help" "$(wc -l <out)" "<" 130
  expect_line '^--help-all prints [0-9]+ more keys'
  for command in train plan eval "bench step"; do  # the commands that take keys: groups, defaults, units
    # shellcheck disable=SC2086
    expect_exit 0 "$millrace" $command --help-all
    expect_no_line '--help-all'
    for group in run data model comm; do expect_lines 1 "^\[$group\] [a-z]" out; done
    expect_texts out "--config <file>" "--run.stop_margin <duration>  (120s)" "--comm.bucket_size <size>  (8MiB)" \
      "--train.global_batch <whole number>  (128)" "Sizes: 64MiB, 512k. Durations: 90s, 10m, 1h30m, 01:30:00."
  done
  expect_says 0 '^\[checkpoint\] [a-z]' "$millrace" train --help
  expect_says 0 '--checkpoint <newest\|best\|file>  \(newest\)' "$millrace" eval --help
  expect_says 0 '--shard-size <size>  \(1GiB\)' "$millrace" pack --help
  expect_lines 3 '^(what is read|what is written|order and split of the rows):$'
  expect_says 0 '--layout <auto\|channels_last\|channels_first\|no_channels>  \(auto\)' "$millrace" inspect --help
  for bench in comm gpu loader step storage; do
    expect_exit 0 "$millrace" bench $bench --help
    expect_line "^$bench: "
  done
  expect_lines 4 '--repeats <N>  \(15\)'
  expect_says 0 '--sample-bytes <size>  \(3072\)' "$millrace" bench loader --help
  expect_says 2 'workload: .*resnet50.*b200.*a100, h100' "$millrace" bench storage --workload resnet50 --accelerator b200
  expect_says 2 "accelerators: '0'.*1 .*65536" "$millrace" bench storage --accelerators 0
  expect_says 2 '--workers' "$millrace" bench loader -c /dev/null --workers 2
  expect_says 0 '\[METRIC\] Training Accelerator Utilization \[AU\] \(%\): ' "$millrace" bench storage --workload retinanet --accelerator b200 --samples 48 --steps 3 --turns 1 --reader direct --dir .
  expect_says 2 'none\.cfg .*No such file' "$millrace" train -c none.cfg
  expect_says 2 '-c FILE' "$millrace" train
  mkfifo pipe.cfg pipe.h5
  expect_says 3 '^error: .*pipe\.h5 \(it is not a regular file\)' timeout 20 "$millrace" train -c data.cfg --data.train pipe.h5
  for words in /dev/zero:device pipe.cfg:named.pipe .:folder; do
    expect_says 2 "^error: cannot open ${words%%:*} \\(it is a ${words##*:}, not a file\\)" timeout 20 "$millrace" train -c "${words%%:*}"
  done
  expect_says 2 'train\.st\>.*--train\.steps\>' "$millrace" train --train.st 5
  expect_says 0 'batch_size is read as train\.global_batch, the samples of a step over all ranks' "$millrace" train -c data.cfg --batch_size 5 --print-config
  grep -qx 'global_batch = 5' out || complain "batch_size does not set train.global_batch"
  expect_says 2 '-train\.epochs: an option begins with two dashes\. write --train\.epochs' "$millrace" train -train.epochs 5
  # Errors that are found after the configuration was read name the line as well.
  printf '%s\n' '[data]' 'train = synthetic:images:rows=60,shape=6x6x1,classes=3' '[model]' 'name = layers' \
    'layers = conv 4 3 as=seen' 'layers = conv 4 3 from=input' 'layers = linear outputs' >dead.cfg
  expect_says 2 '^error: dead\.cfg:5: model\.layers: no layer reads the result of .seen.' "$millrace" plan -c dead.cfg
  printf 'train.global_batch = 4\n\ntrain.micro_batch = 8\n' >larger.cfg
  expect_says 2 '^error: larger\.cfg:3: train\.micro_batch ' "$millrace" train -c larger.cfg
  expect_says 2 '^error: train\.micro_batch ' "$millrace" train -c larger.cfg --train.micro_batch 9
  expect_says 2 '^error: .*run' "$millrace" top
  expect_says 2 "--every: '0s'" "$millrace" top --every 0s .
  "$millrace" inspect 2>&1 | grep -q "CUDA is usable" ||
    expect_says 2 'run\.device = cpu' "$millrace" train -c /dev/null --run.device cuda --data.train x.h5
  expect_says 3 'none-\*\.h5' "$millrace" train -c data.cfg
  expect_says 3 'none\.h5' "$millrace" inspect none.h5
  # A heap that ends before it begins: HDF5 1.10 crashes on it, other versions refuse it.
  base64 -d <<<H4sIAAAAAAACA+v0cHHj5ZLiYgABDg4GFgYBBmTwHwoWcKDyYfIJUJoRSndA6RVMMHFGsJwEVFwQaj66upAgV1eQ6v9oAGaPAQuERnXdKBgpwMPVMQBER0D5EmjpEx84wYRqVgWUrkRLuw7EOGQ0e9AQBPv5uzAyMDFAQ5NBgZm4yKhgRZMglCSo5mKaGUxXwMjABkmijDA+JEEyMkIEuKDquEYLopFW3hGVWiwgNDNqaoFlXha01IMuzgzMx4zQ3AwxAZL/WYE0iM/ExMQIEYWEAtCaTkLNFg54UBFVNAMA6Sr43wcJAAA= | gunzip >damaged.h5
  expect_says 3 damaged.h5 "$millrace" inspect damaged.h5
  # srun without PMIx starts tasks that each see one rank: this is refused, and only the first task says so.
  for words in SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4; do
    expect_says 2 '^error: .*4 tasks.*srun --mpi=pmix' env SLURM_STEP_ID=0 SLURM_PROCID=0 $words "$millrace" inspect
    expect_exit 2 env SLURM_STEP_ID=0 SLURM_PROCID=1 $words "$millrace" inspect
    expect_equal "output of the second task" "" "$(cat out err)"
  done
  expect_says 0 MPI env SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1 "$millrace" inspect
  # The printed configuration contains the option, and prints itself.
  expect_says 0 'steps = 7' "$millrace" train -c data.cfg --train.steps 7 --print-config
  mv out resolved.cfg
  expect_exit 0 "$millrace" train -c resolved.cfg --print-config
  expect_same_files resolved.cfg out
}

# Two ranks report an error once.
case_ranks() {
  expect_says 0 "usage: millrace train" mpi 2 "$millrace" train --help
  expect_says 2 'typo\.cfg:2: .*train\.step\>.*train\.steps\>' mpi 2 "$millrace" train -c typo.cfg
  expect_lines 1 error: err
  expect_says 3 'none-\*\.h5' mpi 2 "$millrace" train -c data.cfg
  expect_says 3 'none\.idx' mpi 2 "$millrace" pack --x none.idx --out shards
}

# npy FILE SHAPE [TYPE]: numbers from stdin, of type uint8 without a TYPE.
npy() {
  local header="{'descr': '${3:-|u1}', 'fortran_order': False, 'shape': $2, }"
  { printf '\223NUMPY\1\0\x'"$(printf %02x ${#header})"'\0%s' "$header" && cat; } >"$1"
}
# random_set NAME SHAPE BYTES OPTION...: 60 random samples of three classes, packed.
random_set() {
  head -c $((60 * $3)) /dev/urandom | npy "$1.npy" "(60, $2)"
  expect_says 0 '60 rows of' "$millrace" pack --x "$1.npy" --y labels.npy --out "$1" "${@:4}"
}
# What pack, inspect, plan and run.json say about arrays of images, signals and volumes.
case_data() {
  local case name made sample
  for _ in {1..20}; do printf '\0\1\2'; done | npy labels.npy '(60,)'
  random_set images '3, 12, 10' 360
  random_set signals '64, 8' 512 --layout channels_last
  random_set firsts '8, 64' 512 --layout channels_first
  random_set volumes '1, 8, 7, 6' 336
  expect_says 0 'samples 12x10x3 uint8, channels first \(.*, 3 classes' "$millrace" inspect images
  expect_says 0 'samples 3x12x10 uint8, channels last ' "$millrace" inspect images --layout channels_last
  expect_line 'x\.mean = '
  expect_line '^rows per class: 0: 20, 1: 20, 2: 20$'
  expect_line "^values of 'x' as stored: [0-9]+ to [0-9]+, 0 of 60 rows with NaN"
  expect_no_line warning
  # A changed byte is found by the checksums of the rows, which three ranks wrote.
  expect_exit 0 mpi 3 "$millrace" pack --x images.npy --y labels.npy --out checked
  expect_says 0 'intact: the checksums of all 60 rows agree' "$millrace" inspect --verify checked
  printf '\1\2\3' | dd of=checked/train-00000.h5 bs=1 seek=5000 conv=notrunc status=none
  expect_says 3 'checked/train-00000\.h5 is damaged: 1 of 60 rows .* first is row 2\.' "$millrace" inspect --verify checked
  expect_says 2 'nchw.*auto\|channels_last\|channels_first' "$millrace" inspect images --layout nchw
  expect_says 3 'firsts/none\.h5' "$millrace" inspect firsts/none.h5
  cat >net.cfg <<'CFG'
[model]
name = layers
layers = conv 4 3 pad=same
layers = relu as=trunk
layers = conv 4 3 pad=same
layers = add trunk
layers = maxpool 2
layers = globalpool
layers = linear outputs
[train]
steps = 3
global_batch = 24
micro_batch = 8
[checkpoint]
every = none
CFG
  for case in images/12x10x4/12x10x3 signals/64x4/64x8 firsts/64x4/64x8 volumes/8x7x6x4/8x7x6x1; do
    IFS=/ read -r name made sample <<<"$case"
    expect_says 0 "data: 60 samples of $sample uint8 " "$millrace" plan -c net.cfg --data.train "$name/train-*.h5" --run.dir "runs/$name"
    expect_line "^  conv1  *.*8x$made "
    expect_line 'global batch 24 = 1 .*8 .*3 .*3 steps per epoch'
    expect_line '^  total: '
    expect_line 'buckets? of'
    expect_no_file "runs/$name"
    expect_exit 0 train 1 "runs/$name" --data.train "$name/train-*.h5"
    expect_texts "runs/$name/run.json" "\"sample\": \"$sample\"" '"rows": 60' '"classes": 3' '"dtype": "uint8"' '"global_batch": "24"' \
      '"micro_batch": "8"' '"micro_batch": 8' '"accumulation": 3' '"reader": "mmap: ' '"ranks": "1"' '"precision": "fp32"' \
      '"seed": "1"' '"resumed_at_step": 0' '"version": "0.' '"hdf5": "HDF5 ' '"mpi": "' '"started": "' '"valid": null'
    expect_line '"reader": "mmap: .*1 shard.*auto: ' "runs/$name/run.json"
    expect_equal "status of the run on $name" '"finished"' "$(summary "runs/$name" status)"
  done
  # A run: its network and keys, without a line for each tensor.
  expect_says 0 '^intact: .*all checksums agree' "$millrace" inspect runs/volumes
  expect_line '^  train\.steps = 3$'
  expect_line '^  .*conv1'
  expect_no_line 'crc32|train\.micro_batch = auto'
  expect_exit 0 "$millrace" inspect --tensors runs/volumes
  expect_line '^  .*conv1.weight .* crc32 '
  expect_exit 0 "$millrace" train -c runs/volumes/config.cfg --print-config
  expect_same_files runs/volumes/config.cfg out
  expect_says 3 'same shape, type, layout' train 1 runs/mixed --data.train 'signals/*.h5' --data.valid 'firsts/*.h5'
  # One damaged file in a folder does not hide the others.
  echo text >images/bad.h5
  expect_says 3 '^error: 1 of 2 files.*images/bad\.h5' "$millrace" inspect images
  expect_line '/x: 60x3x12x10 uint8'
}

# Each reader trains to the same loss, and run.json names it.
case_readers() {
  local reader
  for i in {1..60}; do echo "$i,$((i * i % 17)),$((i % 3))"; done >table.csv
  expect_says 0 'packing 60 rows' "$millrace" pack --x table.csv --y-name 3 --out table
  expect_says 0 'reader: mmap: .*1 shard.*auto: ' "$millrace" inspect table
  printf '[data]\ntrain = table/train-*.h5\n[train]\nsteps = 5\nglobal_batch = 12\n[checkpoint]\nevery = none\n' >net.cfg
  expect_says 0 "the loader's ring" "$millrace" bench loader -c net.cfg --repeats 1 --run.device cpu
  for reader in auto direct mmap uring mpio mpio_collective; do
    if ! train 1 runs/$reader --data.reader $reader >out 2>err; then
      # Some file systems have no O_DIRECT.
      [ $reader = uring ] && grep -q "error: data.reader = uring: .*O_DIRECT" err && continue
      complain "expected a run with data.reader = $reader, but it failed"
      continue
    fi
    expect_equal "loss with data.reader = $reader" "$(grep '"loss"' runs/auto/summary.json)" "$(grep '"loss"' runs/$reader/summary.json)"
    [ $reader = auto ] || expect_line "\"reader\": \"$reader: " runs/$reader/run.json
  done
  expect_line '"reader": "mmap: .* of free memory' runs/auto/run.json
}

# What pack takes besides arrays, and which options do not go together.
case_inputs() {
  local class
  printf 'a,b,class\n1,2,0\n3,4,1\n5,6,2\n' >table.csv
  expect_says 0 'table\.csv: 3 rows of 2 fp32' "$millrace" pack --x table.csv --y-name class --out table
  expect_says 0 '3 rows in 1 files, samples 2 fp32, 3 classes' "$millrace" inspect table
  expect_says 3 "table\.csv .*'y' \(a, b, class\).*--y-name" "$millrace" pack --x table.csv --out table2
  for class in apple pear; do
    printf 'a,kind\n1,%s\n2,zebra\n' $class >$class.csv
    expect_says 0 'columns a, kind, y are labels' "$millrace" pack --x $class.csv --y-name kind --out $class
  done
  printf '[model]\nname = mlp\n[data]\ntrain = apple/*.h5\nvalid = pear/*.h5\n[run]\ndir = runs/fruit\n' >fruit.cfg
  expect_says 3 "data\.valid .*'pear', not 'apple'.*data\.train" "$millrace" train -c fruit.cfg
  expect_says 0 'class_names = pear, zebra' "$millrace" inspect pear
  expect_says 2 'data\.augment = on' "$millrace" train -c fruit.cfg --data.valid 'apple/*.h5' --data.random_resized_crop 0.3
  expect_says 0 'y are targets' "$millrace" pack --x table.csv --y-name class --targets --out whole
  # Likely mistakes are named: by pack, by inspect, and before a training.
  printf '1,2,1\n3,4,2\n5,6,1\n' >from_1.csv
  expect_says 0 "^warning: 'y': the labels begin at 1\." "$millrace" pack --x from_1.csv --y-name 3 --out from_1
  expect_says 0 "^warning: 'y': the labels begin at 1\." "$millrace" inspect from_1
  printf '[data]\ntrain = from_1/*.h5\n[train]\nsteps = 2\nglobal_batch = 9\n' >from_1.cfg
  expect_says 0 '^warning: train\.global_batch = 9 is more than the 3 samples' "$millrace" train -c from_1.cfg
  expect_lines 1 '^too short to judge: 2 steps'
  expect_no_line '-bound: |worth|left 0|labels begin'
  expect_lines 2 '^step (1/2 epoch 1|2/2 epoch 2) '
  printf '\0\0\200\77\0\0\300\177' | npy nan.npy '(2, 1)' '<f4'  # 1 and NaN
  printf '\0\1' | npy two.npy '(2,)'
  expect_says 3 '^error: row 1 of nan\.npy holds values that are not finite' "$millrace" pack --x nan.npy --y two.npy --out nan
  expect_says 2 '--chunk-rows .*--codec' "$millrace" pack --x table.csv --y-name class --level 3 --out coded
  expect_says 2 "--codec: unknown codec 'gzip'.*none, zstd or lz4" "$millrace" pack --x table.csv --y-name class --codec gzip --out coded
  expect_says 2 '--targets .*CSV' "$millrace" pack --x table.csv --tokens uint8 --context 4 --targets --out tokens3
  expect_says 0 'tokens of 1 byte, 6 windows of 5' "$millrace" pack --x table.csv --tokens uint8 --context 4 --out tokens
  expect_says 2 "--tokens: 'int4'.*uint8\|uint16\|uint32" "$millrace" pack --x table.csv --tokens int4 --context 4 --out tokens2
  mkdir images
  expect_says 2 '--encoded .*--resize' "$millrace" pack --x images --encoded --resize 8 --out pictures
  expect_says 2 'data\.resize .*data\.crop .*encoded' "$millrace" train -c fruit.cfg --data.valid 'apple/*.h5' --data.resize 8
  expect_says 3 'folders of images' "$millrace" pack --x images --encoded --out pictures
  expect_says 2 '--resize: ' "$millrace" pack --x images --resize 0 --out pictures
  expect_says 3 'folders of images' "$millrace" pack --x images --resize 8 --out pictures
  mkdir images/a
  echo text >images/a/1.png
  expect_says 3 '^error: .*a/1\.png is neither PNG nor JPEG' "$millrace" pack --x images --encoded --out pictures
  expect_equal "files of a failed pack" "" "$(ls pictures)"
  expect_says 2 "--prefix: '\.\./x'" "$millrace" pack --x table.csv --y-name class --prefix ../x --out pictures
  # A limit on the size of files is an error like a full disk.
  write_table 2000 100 >large.csv
  (ulimit -f 64 && expect_says 3 '^error: .*train-00000\.h5.*File too large' "$millrace" pack --x large.csv --y-name 101 --out pictures
    exit $failures) || failures=$((failures + 1))
  expect_equal "files of a pack beyond the limit" "" "$(ls pictures)"
}

# The step on a GPU that is not here: names, files that describe one, JSON, ranks.
case_gpu_plan() {
  cat >net.cfg <<'CFG'
[run]
device = cuda
precision = fp16
[data]
train = synthetic:images:rows=256,shape=32x32x3,classes=10
[model]
name = resnet
depth = 8
[train]
global_batch = 64
CFG
  expect_says 0 '^a training step on h200 \(4\.8 TB/s, 989 TFLOP/s in fp16\)' "$millrace" plan -c net.cfg --gpu h200
  expect_lines 2 '^  convolution wgrad '
  expect_line 'predicted: .* samples/s; ideal: '
  expect_line 'level 0 +level 1 +level 2 +level 3'
  for words in a100 b200 h100; do expect_says 0 "on $words " "$millrace" plan -c net.cfg --gpu $words; done
  expect_says 2 "^error: .*--gpu: 'h20' .*a100, b200, h100, h200" "$millrace" plan -c net.cfg --gpu h20
  expect_lines 1 error: err
  expect_says 2 'unknown option --gpus\. did you mean --gpu\?' "$millrace" plan -c net.cfg --gpus h200
  expect_says 2 'unknown key lrr\. did you mean --optim\.lr\?' "$millrace" plan -c net.cfg --lrr 1
  expect_says 2 "^error: .*--gpu: '' " "$millrace" plan -c net.cfg --gpu ''
  expect_says 2 '--json needs --gpu' "$millrace" plan -c net.cfg --json
  expect_says 2 'strict works on the CPU only' "$millrace" plan -c net.cfg --gpu h200 --run.reproducible strict
  expect_says 2 'data\.train' "$millrace" plan -c /dev/null --gpu h200
  printf 'memory_bandwidth = 1TB/s\nfp16 = 100e12\nnvlnk = 5GB/s\n' >gpu.txt
  expect_says 2 "^error: gpu\.txt:3: .*'nvlnk'.*nvlink" "$millrace" plan -c net.cfg --gpu gpu.txt
  sed -i s/nvlnk/nvlink/ gpu.txt
  expect_says 0 'on gpu\.txt \(1 TB/s, 100 TFLOP/s' "$millrace" plan -c net.cfg --gpu gpu.txt --model.fusion 2
  expect_line 'fusion level 2'
  expect_exit 0 "$millrace" plan -c net.cfg --gpu gpu.txt --json
  python3 - <<'PY' || complain "expected JSON with a level for each fusion level"
import json
plan = json.load(open("out"))
assert [level["fusion"] for level in plan["levels"]] == [0, 1, 2, 3], plan["levels"]
assert plan["gpu"]["nvlink"] == 5e9 and plan["samples"] == 64
level = plan["levels"][1]
assert abs(sum(p["seconds"] for p in level["passes"].values()) - level["step_seconds"]) < 1e-12
PY
  expect_says 0 'collectives; a rank sends ' mpi 2 "$millrace" plan -c net.cfg --gpu h200
  expect_says 2 "'h20'" mpi 2 "$millrace" plan -c net.cfg --gpu h20
  expect_lines 1 error: err
}

run_case "$3"
