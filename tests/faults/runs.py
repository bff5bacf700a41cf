"""Starts short trainings, finds their processes and compares their results."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

STEPS = 40
STEP_SECONDS = 0.03
COMM_TIMEOUT = 8  # comm.timeout of the trainings in seconds
MARKER = "MILLRACE_FAULTS_TRIAL"  # an environment variable by which the processes of a trial are found

MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_ess_singleton_isolated": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}

TABLE_DATA = ["--data.train", "set/train-*.h5", "--data.valid", "set/train-00000.h5"]
# The networks and optimizers that the trials train. Every tensor of a checkpoint and every kind of random number occurs.
VARIANTS = {
    "adamw": [*TABLE_DATA, "--model.hidden", "64", "64", "--model.dropout", "0.1", "--optim.name", "adamw"],
    "zero": [*TABLE_DATA, "--model.hidden", "300", "--optim.zero", "1", "--optim.momentum", "0.8"],
    "conv": [
        *("--data.train", "synthetic:images:rows=240,shape=8x8x3,classes=4"),
        *("--data.valid", "synthetic:images:rows=48,shape=8x8x3,classes=4,seed=9", "--data.augment", "on"),
        *("--model.name", "layers", "--model.layers", "conv 8 3x3 pad=same", "--model.layers", "batchnorm"),
        *("--model.layers", "relu", "--model.layers", "globalpool", "--model.layers", "linear outputs"),
    ],
}
# On the command line, because it also holds before the configuration has been read.
DEADLINE = ["--comm.timeout", f"{COMM_TIMEOUT}s"]
CONFIG = f"""
run.dir = run
run.device = cpu
run.threads = 1
data.retry_delay = 5ms
train.steps = {STEPS}
train.global_batch = 24
optim.lr = 0.01
optim.schedule = constant
log.every = 1s
"""


class Tools:
    """The programs under test and the folder in which all trials work."""

    def __init__(self, millrace, mpiexec, faulty_calls, folder):
        self.millrace = str(pathlib.Path(millrace).resolve())
        self.mpiexec = mpiexec
        self.faulty_calls = str(pathlib.Path(faulty_calls).resolve())
        self.run_sh = str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "run.sh")
        self.folder = pathlib.Path(folder)
        self.references = {}

    def pack(self):
        """Packs a table of 100 numbers and a label: four shards of 60 rows, and one with all 240 rows."""
        rows = ([(r * 7 + c * c) % 13 for c in range(100)] + [r * 7 % 13 // 5] for r in range(240))
        table = self.folder / "table.csv"
        table.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
        for name, size in (("set", "24000"), ("larger", "96000")):
            command = [self.millrace, "pack", "--x", str(table), "--y-name", "101", "--out", str(self.folder / name), "--shard-size", size]
            subprocess.run(command, check=True, env={**os.environ, **MPI}, capture_output=True)

    def furnish(self, folder):
        """Gives a folder the configuration and the data."""
        (folder / "set").symlink_to(self.folder / "set")
        (folder / "net.cfg").write_text(CONFIG)

    def reference(self, ranks, variant):
        """The results of the uninterrupted training."""
        key = (ranks, variant)
        if key not in self.references:
            folder = self.folder / f"reference-{ranks}-{variant}"
            folder.mkdir()
            self.furnish(folder)
            command = [self.mpiexec, "--bind-to", "none", "-n", str(ranks), self.millrace, "train", "-c", "net.cfg", *DEADLINE]
            command += [*VARIANTS[variant], "--checkpoint.every", "10"]
            done = subprocess.run(command, cwd=folder, env={**os.environ, **MPI}, capture_output=True, text=True, timeout=300)
            if done.returncode != 0:
                sys.exit(f"the uninterrupted training ended with {done.returncode}: {done.stderr}")
            self.references[key] = results(self.millrace, folder / "run")
        return self.references[key]


def results(millrace, run):
    """What must be equal bit for bit: metrics without times, evaluations, and the tensors of the last checkpoint.

    Raises OSError or ValueError if a file is missing or damaged."""
    times = re.compile(r"samples_per_second|speed_of_light|.*_ms")
    found = {}
    for name in ("metrics", "validation"):
        lines = (run / f"{name}.jsonl").read_text().splitlines()
        found[name] = [{k: v for k, v in json.loads(line).items() if not times.fullmatch(k)} for line in lines]
    newest = max((run / "checkpoints").glob("step-*.h5"), default=run / "checkpoints" / "none")
    latest = (run / "checkpoints" / "latest").read_text().strip()
    if latest != newest.name:
        raise ValueError(f"latest names {latest}, not {newest.name}")
    inspect = subprocess.run([millrace, "inspect", "--tensors", str(newest)], capture_output=True, text=True, env={**os.environ, **MPI}, timeout=60)
    if inspect.returncode != 0:
        raise ValueError(f"inspect: {inspect.stderr.strip()}")
    found["tensors"] = re.findall(r"\S+ .*crc32 \d+", inspect.stdout)
    found["step"] = re.search(r": step (\d+)", inspect.stdout).group(1)
    return found


def difference(expected, got):
    """The first difference between two results, in a few words; an empty string if there is none."""
    steps = [m["step"] for m in got["metrics"]]
    if steps != list(range(1, len(steps) + 1)):
        odd = next(i for i, s in enumerate(steps) if s != i + 1)
        return f"metrics.jsonl: line {odd + 1} is of step {steps[odd]}"
    for name in ("step", "tensors", "metrics", "validation"):
        if len(expected[name]) != len(got[name]):
            return f"{name}: {len(got[name])} entries instead of {len(expected[name])}"
        for a, b in zip(expected[name], got[name]):
            if a != b:
                return f"{name}: {b} instead of {a}"
    return ""


class Process:
    """A training that runs: mpirun, or the program itself for one rank without mpirun."""

    def __init__(self, command, cwd, env, out):
        self.out = open(out, "w+", encoding="utf-8", errors="replace")
        # Through a pipe: a limit on the size of files must not silence the training.
        self.writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=self.out, start_new_session=True)
        pipe = self.writer.stdin
        self.began = time.monotonic()
        self.child = subprocess.Popen(command, cwd=cwd, env=env, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, start_new_session=True)
        pipe.close()
        self.code = None

    def alive(self):
        return self.child.poll() is None

    def wait(self, seconds):
        """The exit code as a shell reports it, or None after that many seconds."""
        try:
            code = self.child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        self.code = code if code >= 0 else 128 - code
        try:
            self.writer.wait(timeout=1)  # longer only if a process of the training is left
        except subprocess.TimeoutExpired:
            pass
        return self.code

    def text(self):
        self.out.flush()
        self.out.seek(0)
        return self.out.read()


def marked(trial_id, millrace=None):
    """The processes of a trial: (pid, rank or None, name). A rank is a process of the program `millrace`."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes().split(b"\0")
            if f"{MARKER}={trial_id}".encode() not in environment:
                continue
            name = (path / "comm").read_text().strip()
            if (path / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                continue
            ranks = [int(e[21:]) for e in environment if e.startswith(b"OMPI_COMM_WORLD_RANK=")]
            is_rank = millrace and os.readlink(path / "exe") == millrace
            found.append((int(path.name), (ranks or [0])[0] if is_rank else None, name))
        except (OSError, ValueError):
            continue
    return found


def kill_marked(trial_id):
    for pid, _, _ in marked(trial_id):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def remove(folder):
    shutil.rmtree(folder, ignore_errors=True)
