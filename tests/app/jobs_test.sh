#!/bin/bash
# The job scripts of jobs/ with a Slurm that only takes notes: jobs_test.sh SOURCE_DIR MPIEXEC
set -u
source_dir=$1
mpiexec=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() { echo "FAILED: $*"; cat out err calls 2>/dev/null; failures=$((failures + 1)); }

mkdir bin
cat >bin/srun <<'X'
#!/bin/bash
echo "srun $*" >>calls
exit "$FAKE_RC"
X
cat >bin/scontrol <<'X'
#!/bin/bash
echo "scontrol $*" >>calls
X
cat >bin/mpirun <<'X'
#!/bin/bash
echo "mpirun $*" >>calls
[ "${FAKE_WAIT:-}" ] || exit "$FAKE_RC"
trap 'echo "mpirun got USR2" >>calls; sleep 0.3; exit 75' USR2
echo >started
for ((i = 0; i < 100; ++i)); do sleep 0.1; done
exit 9
X
chmod +x bin/*
export PATH=$folder/bin:$PATH SLURM_JOB_ID=42 MILLRACE=the-program
unset SLURM_RESTART_COUNT MILLRACE_MAX_RESTARTS SLURM_CPUS_PER_TASK

# ends SCRIPT CODE REQUEUED(yes|no): the script ends with CODE and asks for a requeue or not
ends() {
  local script=$1 code=$2 requeued=$3 got
  : >calls
  FAKE_RC=${FAKE_RC:-$code} bash "$source_dir/jobs/$script" a.cfg --train.epochs 3 >out 2>err
  got=$?
  [ $got -eq "$code" ] || complain "$script ended with $got, not $code"
  local asked=no
  grep -qx "scontrol requeue 42" calls && asked=yes
  [ $asked = "$requeued" ] || complain "$script with $code: requeue asked: $asked, wanted: $requeued"
}

for script in train.slurm train-mpirun.slurm; do
  bash -n "$source_dir/jobs/$script" || complain "$script is no bash"
  ends $script 75 yes
  grep -q "the-program train -c a.cfg --run.resume auto --train.epochs 3" calls || complain "$script starts something else"
  ends $script 0 no
  for code in 1 2 3 4 5 137; do ends $script $code no; done
  export SLURM_RESTART_COUNT=19
  ends $script 75 yes
  export SLURM_RESTART_COUNT=20
  ends $script 75 no
  grep -q "restarted 20 times" err || complain "$script does not say why it gives up"
  MILLRACE_MAX_RESTARTS=30 ends $script 75 yes
  unset SLURM_RESTART_COUNT
  bash "$source_dir/jobs/$script" >out 2>err && complain "$script starts without a configuration"
  grep -q "give a configuration file" err || complain "$script does not ask for a configuration"
  grep -qE '^#SBATCH.*--requeue' "$source_dir/jobs/$script" || complain "$script cannot be requeued"
  grep -qE '^#SBATCH.*--open-mode=append' "$source_dir/jobs/$script" || complain "$script overwrites its output when restarted"
done
FAKE_RC=75 ends train.slurm 75 yes
grep -q "srun --mpi=pmix " calls || complain "train.slurm does not use pmix"
grep -qE '^#SBATCH.*--signal=USR2@' "$source_dir/jobs/train.slurm" || complain "train.slurm asks for no signal"
grep -qE '^#SBATCH.*--signal=B:USR2@' "$source_dir/jobs/train-mpirun.slurm" || complain "train-mpirun.slurm asks for no signal"

# A signal to the batch script reaches mpirun, and mpirun's code comes back.
for signal in USR2 TERM; do
  : >calls
  rm -f started
  FAKE_RC=0 FAKE_WAIT=1 bash "$source_dir/jobs/train-mpirun.slurm" a.cfg >out 2>err &
  script=$!
  for ((i = 0; i < 50; ++i)); do [ -e started ] && break; sleep 0.1; done
  kill -$signal $script
  wait $script
  got=$?
  [ $got -eq 75 ] || complain "after $signal train-mpirun.slurm ended with $got"
  grep -q "mpirun got USR2" calls || complain "$signal was not handed on to mpirun"
  grep -qx "scontrol requeue 42" calls || complain "no requeue after $signal"
done

# The real mpirun hands USR2 on to every rank.
rm bin/mpirun
cat >program <<'X'
#!/bin/bash
trap 'echo >>seen; exit 75' USR2
echo >>started
for ((i = 0; i < 100; ++i)); do sleep 0.1; done
X
chmod +x program
ln -s "$mpiexec" bin/mpirun
: >calls
rm -f started seen
MILLRACE=./program bash "$source_dir/jobs/train-mpirun.slurm" a.cfg >out 2>err &
script=$!
ranks() { cat started 2>/dev/null | wc -l; }
for ((i = 0; i < 100; ++i)); do [ "$(ranks)" -gt 0 ] && break; sleep 0.1; done
sleep 0.5
kill -USR2 $script
wait $script
got=$?
[ $got -eq 75 ] || complain "with the real mpirun train-mpirun.slurm ended with $got"
[ "$(cat seen | wc -l)" -eq "$(ranks)" ] || complain "of $(ranks) ranks $(cat seen | wc -l) saw the signal"

# gpu-selftest.slurm passes where all runs have the same losses, and names the one that has another, or stands still.
mkdir selftest
cat >selftest/millrace <<'X'
#!/bin/bash
case "$*" in *10000000*) echo "error: step 3: sum 1 is late: ${FAKE_LATE-late: rank 1}" >&2; exit 5 ;; esac
folder=$(sed -n 's/.*--run.dir \([^ ]*\).*/\1/p' <<<"$*")
[ "$folder" ] || exit 0
mkdir -p "$folder"
loss=2.25
[ "$(basename "$folder")" = "${FAKE_WRONG:-}" ] && loss=2.75
for ((i = 1; i <= 40; ++i)); do echo "{\"step\":$i,\"loss\":$loss,\"lr\":0.1}"; done >"$folder/metrics.jsonl"
X
cat >selftest/srun <<'X'
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
exec "$@"
X
chmod +x selftest/*
selftest() { PATH=$folder/selftest:$PATH MILLRACE=$folder/selftest/millrace bash "$source_dir/jobs/gpu-selftest.slurm" >out 2>err; }
selftest || complain "gpu-selftest.slurm fails where all is well"
grep -q FAIL out && complain "gpu-selftest.slurm says FAIL where all is well"
for name in nccl zero-lamb resumed; do
  FAKE_WRONG=$name selftest && complain "gpu-selftest.slurm passes with a wrong $name"
  grep -q "^FAIL  $name: loss '2.75' at step" out || complain "gpu-selftest.slurm does not name $name"
done
FAKE_LATE="nobody" selftest && complain "gpu-selftest.slurm passes without a watchdog"

# scripts/run.sh, which make run uses, turns what people and systems send into the signal to stop.
for signal in TERM INT; do
  rm -f started seen
  env --default-signal=INT "$source_dir/scripts/run.sh" 2 ./program >out 2>err &
  script=$!
  for ((i = 0; i < 100; ++i)); do [ "$(ranks)" -eq 2 ] && break; sleep 0.1; done
  sleep 0.3
  kill -$signal $script
  wait $script
  got=$?
  [ $got -eq 75 ] || complain "after $signal run.sh ended with $got"
  [ "$(cat seen | wc -l)" -eq 2 ] || complain "of 2 ranks $(cat seen | wc -l) saw $signal"
done

[ $failures -eq 0 ]
