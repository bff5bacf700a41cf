#!/bin/sh
# The program from outside: cli_test.sh MILLRACE MPIEXEC solo|ranks|data|readers|inputs
set -u
millrace=$1
mpiexec=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() { echo "FAILED: $*"; cat out err; failures=$((failures + 1)); }
# expect CODE TEXT COMMAND...: the exit code, and TEXT in exactly one line of the output.
expect() {
  code=$1 text=$2
  shift 2
  "$@" >out 2>err
  got=$?
  [ $got -eq "$code" ] || complain "$* ended with $got, not $code"
  [ "$(cat out err | grep -cF -- "$text")" -eq 1 ] || complain "$* did not say '$text' exactly once"
}

printf '[train]\nstep = 5\n' >typo.cfg
printf '[data]\ntrain = none-*.h5\n' >data.cfg

if [ "$3" = solo ]; then
  expect 0 "usage: millrace COMMAND" "$millrace" --help
  expect 0 "millrace 0." "$millrace" --version
  expect 2 "error: unknown command 'trian'. did you mean train?" "$millrace" trian
  for command in train eval pack inspect plan diagnose report tune scaling top bench; do
    expect 0 "usage: millrace $command" "$millrace" $command --help
    # Every option has a line that says what it does, and the help is whole: it points to no other command's.
    awk '/^  (-., )?--[a-z]/ { n++; getline; if ($0 !~ /^      [^ ]/) exit 1 } END { exit n == 0 }' out || complain "an option of $command has no help"
    grep -q "millrace .* --help" out && complain "the help of $command sends elsewhere"
  done
  for command in train plan eval "bench step"; do  # with keys: groups, defaults, units
    "$millrace" $command --help >out 2>err
    for text in "[run] the run as a whole" "[data] what is read, and how" "[model] the network" "[comm] communication between ranks" \
      "--config <file>" "--run.stop_margin <duration>  (120s)" "--comm.bucket_size <size>  (8MiB)" "--train.global_batch <whole number>  (128)" \
      "Sizes: 64MiB, 512k. Durations: 90s, 10m, 1h30m, 01:30:00."; do
      grep -qF -- "$text" out || complain "the help of $command does not say '$text'"
    done
  done
  expect 0 "usage: millrace scaling" "$millrace" predict --help
  grep -qx "warning: the command predict is deprecated. use millrace scaling instead" err || complain "predict does not name its new name"
  expect 0 "[checkpoint] saved states" "$millrace" train --help
  expect 0 "--checkpoint <file>  (the newest complete one of run.dir)" "$millrace" eval --help
  expect 0 "--shard-size <size>  (1GiB)" "$millrace" pack --help
  for group in "what is read:" "what is written:" "order and split of the rows:"; do grep -qx "$group" out || complain "pack has no group $group"; done
  expect 0 "--layout <auto|channels_last|channels_first|no_channels>  (auto)" "$millrace" inspect --help
  for bench in comm gpu loader step storage; do
    "$millrace" bench $bench --help >out 2>err
    grep -q "^$bench: " out || complain "bench $bench --help does not describe it"
  done
  [ "$(grep -cF -- "--repeats <N>  (15)" out)" -eq 4 ] || complain "not every bench says its repeats"
  expect 0 "--sample-bytes <size>  (3072)" "$millrace" bench loader --help
  expect 2 "--workload: no parameters of resnet50 on b200 are published. resnet50 is published for a100, h100" "$millrace" bench storage --accelerator b200
  expect 2 "--accelerators: '0' is out of range (must be at least 1 and at most 65536)" "$millrace" bench storage --accelerators 0
  expect 2 "--workers is for the benchmark without a configuration" "$millrace" bench loader -c /dev/null --workers 2
  expect 0 "[METRIC] Training Accelerator Utilization [AU] (%): " "$millrace" bench storage --workload retinanet --accelerator b200 --samples 48 --steps 3 --turns 1 --reader direct --dir "$folder"
  expect 2 "cannot open none.cfg (No such file or directory)" "$millrace" train -c none.cfg
  expect 2 "no configuration file. give one with -c FILE" "$millrace" train
  expect 2 "no run. give its folder" "$millrace" top
  expect 2 "--every: '0s' is not above 0s" "$millrace" top --every 0s .
  "$millrace" inspect 2>&1 | grep -q "CUDA is usable" ||
    expect 2 "set run.device = cpu (or auto)" "$millrace" train -c /dev/null --run.device cuda --data.train x.h5
  expect 3 "none-*.h5" "$millrace" train -c data.cfg
  expect 3 "no file matches none.h5" "$millrace" inspect none.h5
  # A heap that ends before it begins: HDF5 1.10 crashes on it, others refuse it.
  echo H4sIAAAAAAACA+v0cHHj5ZLiYgABDg4GFgYBBmTwHwoWcKDyYfIJUJoRSndA6RVMMHFGsJwEVFwQaj66upAgV1eQ6v9oAGaPAQuERnXdKBgpwMPVMQBER0D5EmjpEx84wYRqVgWUrkRLuw7EOGQ0e9AQBPv5uzAyMDFAQ5NBgZm4yKhgRZMglCSo5mKaGUxXwMjABkmijDA+JEEyMkIEuKDquEYLopFW3hGVWiwgNDNqaoFlXha01IMuzgzMx4zQ3AwxAZL/WYE0iM/ExMQIEYWEAtCaTkLNFg54UBFVNAMA6Sr43wcJAAA= | base64 -d | gunzip >damaged.h5
  expect 3 damaged.h5 "$millrace" inspect damaged.h5
  # srun without PMIx starts tasks that each believe to be alone: refused, and the first of them says how to start.
  for words in SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4; do
    expect 2 "error: Slurm started 4 tasks, but MPI sees one rank (srun lacks PMIx). use: srun --mpi=pmix" \
      env SLURM_STEP_ID=0 SLURM_PROCID=0 $words "$millrace" inspect
    env SLURM_STEP_ID=0 SLURM_PROCID=1 $words "$millrace" inspect >out 2>err
    [ $? -eq 2 ] && [ ! -s out ] && [ ! -s err ] || complain "the second of several lonely tasks speaks, or goes on"
  done
  expect 0 "MPI" env SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1 "$millrace" inspect
  "$millrace" train -c data.cfg --train.steps 7 --print-config >resolved.cfg || complain "--print-config failed"
  "$millrace" train -c resolved.cfg --print-config >again.cfg || complain "--print-config failed on its own output"
  cmp resolved.cfg again.cfg || complain "--print-config does not print itself"
  expect 0 "steps = 7" cat resolved.cfg
elif [ "$3" = data ]; then  # from arrays to a run: what pack, inspect, plan and run.json say of the data
  npy() { # NAME SHAPE: uint8 from stdin
    header="{'descr': '|u1', 'fortran_order': False, 'shape': $2, }"
    { printf '\223NUMPY\1\0'"\\$(printf %03o ${#header})"'\0%s' "$header"; cat; } >"$1"
  }
  # set_of NAME SHAPE BYTES OPTIONS...: 60 random samples of three classes, packed
  set_of() {
    name=$1 shape=$2 bytes=$3
    shift 3
    head -c $((60 * bytes)) /dev/urandom | npy "$name.npy" "(60, $shape)"
    expect 0 "60 rows of" "$millrace" pack --x "$name.npy" --y labels.npy --out "$name" "$@"
  }
  for _ in $(seq 20); do printf '\0\1\2'; done | npy labels.npy '(60,)'
  set_of images '3, 12, 10' 360
  set_of signals '64, 8' 512 --layout channels_last
  set_of firsts '8, 64' 512 --layout channels_first
  set_of volumes '1, 8, 7, 6' 336
  expect 0 "samples 12x10x3 uint8, channels first (by the file's attribute), 3 classes" "$millrace" inspect images
  expect 0 "samples 3x12x10 uint8, channels last (as asked)" "$millrace" inspect images --layout channels_last
  grep -q "x.mean = " out || complain "inspect shows no mean"
  expect 2 "layout 'nchw' is none of auto|channels_last|channels_first" "$millrace" inspect images --layout nchw
  expect 3 "no file matches firsts/none.h5" "$millrace" inspect firsts/none.h5
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
    name=${case%%/*} made=${case#*/} sample=${case##*/}
    made=${made%/*}
    set -- -c net.cfg --data.train "$name/train-*.h5" --run.dir "runs/$name"
    expect 0 "data: 60 samples of $sample uint8 in 1 files" "$millrace" plan "$@"
    grep -q "^  1.conv  *.*8x$made " out || complain "plan shows no convolution that makes 8x$made"
    for text in "global batch 24 = 1 ranks x micro-batch 8 x 3 accumulated; 3 steps an epoch, 3 in all" "  all: " "buckets of up to"; do
      grep -qF "$text" out || complain "plan does not say '$text'"
    done
    [ ! -e "runs/$name" ] || complain "plan made a run's folder"
    "$millrace" train "$@" >out 2>err || complain "no training on $name"
    for text in '"sample": "'$sample'"' '"rows": 60' '"classes": 3' '"dtype": "uint8"' '"global_batch": "24"' '"micro_batch": "8"' '"micro_batch": 8' '"accumulation": 3' '"reader": "mmap: contiguous data, 1 shard, y in memory (auto: ' \
      '"ranks": "1"' '"precision": "fp32"' '"seed": "1"' '"resumed_at_step": 0' '"hdf5": "HDF5 ' '"mpi": "' '"started": "' '"valid": null'; do
      grep -qF "$text" "runs/$name/run.json" || complain "run.json of $name does not say $text"
    done
    grep -qF '"status": "finished"' "runs/$name/summary.json" || complain "summary.json of $name says something else"
  done
  "$millrace" train -c runs/volumes/config.cfg --print-config | cmp - runs/volumes/config.cfg || complain "config.cfg is not what ran"
  expect 3 "both need the same shape, type, layout and kind of targets" "$millrace" train -c net.cfg --data.train 'signals/*.h5' \
    --data.valid 'firsts/*.h5' --run.dir runs/mixed
  # One bad file in a folder does not hide the others.
  echo text >images/bad.h5
  expect 3 "error: 1 of 2 files cannot be read: images/bad.h5" "$millrace" inspect images
  grep -q '/x: 60x3x12x10 uint8' out || complain "the good file is not described"
elif [ "$3" = readers ]; then  # every engine trains to the same loss and says what it is
  for i in $(seq 60); do echo "$i,$((i * i % 17)),$((i % 3))"; done >table.csv
  expect 0 "packing 60 rows" "$millrace" pack --x table.csv --y-name 3 --out table
  expect 0 "reader: mmap: contiguous data, 1 shard, y in memory (auto: " "$millrace" inspect table
  printf '[data]\ntrain = table/train-*.h5\n[train]\nsteps = 5\nglobal_batch = 12\n[checkpoint]\nevery = none\n' >table.cfg
  expect 0 "through the loader's ring" "$millrace" bench loader -c table.cfg --repeats 1 --run.device cpu
  for reader in auto direct mmap uring mpio mpio_collective; do
    if ! "$millrace" train -c table.cfg --data.reader $reader --run.dir runs/$reader >out 2>err; then
      [ $reader = uring ] && grep -q "error: data.reader = uring: .* cannot be read by O_DIRECT" err && continue  # the temporary folder has none
      complain "no training with data.reader = $reader"
    fi
    [ "$(grep '"loss"' runs/$reader/summary.json)" = "$(grep '"loss"' runs/auto/summary.json)" ] || complain "another loss with $reader"
    [ $reader = auto ] || grep -q "\"reader\": \"$reader: " runs/$reader/run.json || complain "run.json does not say $reader"
  done
  grep -q '"reader": "mmap: .* fit in half of the .* of free memory)"' runs/auto/run.json || complain "run.json does not say why mmap"
elif [ "$3" = inputs ]; then  # what pack takes besides arrays, and what does not go together
  printf 'a,b,class\n1,2,0\n3,4,1\n5,6,2\n' >table.csv
  expect 0 "packing 3 rows: table.csv: 3 rows of 2 fp32" "$millrace" pack --x table.csv --y-name class --out table
  expect 0 "3 rows in 1 files, samples 2 fp32, 3 classes" "$millrace" inspect table
  expect 3 "table.csv has no column 'y' (a, b, class). name the labels' with --y-name" "$millrace" pack --x table.csv --out table2
  for class in apple pear; do
    printf 'a,kind\n1,%s\n2,zebra\n' $class >$class.csv
    expect 0 "columns a, kind, y are labels" "$millrace" pack --x $class.csv --y-name kind --out $class
  done
  printf '[model]\nname = mlp\n[data]\ntrain = apple/*.h5\nvalid = pear/*.h5\n[run]\ndir = runs/fruit\n' >fruit.cfg
  expect 3 "in data.valid label 0 is 'pear', not 'apple' as in data.train" "$millrace" train -c fruit.cfg
  expect 0 "class_names = pear, zebra" "$millrace" inspect pear
  expect 2 "do nothing without data.augment = on" "$millrace" train -c fruit.cfg --data.valid 'apple/*.h5' --data.random_resized_crop 0.3
  expect 0 "y are targets" "$millrace" pack --x table.csv --y-name class --targets --out whole
  expect 2 "--level and --chunk-rows do nothing without --codec" "$millrace" pack --x table.csv --y-name class --level 3 --out coded
  expect 2 "--codec: 'gzip' is none of none|zstd|lz4" "$millrace" pack --x table.csv --y-name class --codec gzip --out coded
  expect 2 "--targets is for CSV. remove it" "$millrace" pack --x table.csv --tokens uint8 --context 4 --targets --out tokens3
  expect 0 "tokens of 1 byte, 6 windows of 5" "$millrace" pack --x table.csv --tokens uint8 --context 4 --out tokens
  expect 2 "--tokens: 'int4' is not one of uint8|uint16|uint32" "$millrace" pack --x table.csv --tokens int4 --context 4 --out tokens2
  mkdir images
  expect 2 "--encoded stores images as they are. remove --resize" "$millrace" pack --x images --encoded --resize 8 --out pictures
  expect 2 "data.resize and data.crop are for encoded images" "$millrace" train -c fruit.cfg --data.valid 'apple/*.h5' --data.resize 8
  expect 3 "holds no folders of images" "$millrace" pack --x images --encoded --out pictures
  expect 2 "--resize: " "$millrace" pack --x images --resize 0 --out pictures
  expect 3 "holds no folders of images" "$millrace" pack --x images --resize 8 --out pictures
else
  expect 0 "usage: millrace train" "$mpiexec" -n 2 "$millrace" train --help
  expect 2 "error: typo.cfg:2: unknown key train.step. did you mean train.steps?" "$mpiexec" -n 2 "$millrace" train -c typo.cfg
  [ "$(grep -c 'error:' err)" -eq 1 ] || complain "a wrong key gave more than one error"
  expect 2 "error: command line: unknown key train.st. did you mean --train.steps?" "$mpiexec" -n 2 "$millrace" train --train.st 5
  expect 3 "none-*.h5" "$mpiexec" -n 2 "$millrace" train -c data.cfg
  expect 3 "no file is called none.idx" "$mpiexec" -n 2 "$millrace" pack --x none.idx --out shards
fi

[ $failures -eq 0 ]
