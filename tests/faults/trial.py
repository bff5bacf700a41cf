"""One trial: a training, a fault at a random moment, and the judgement of how it ends."""

import os
import random
import re
import time

from runs import COMM_TIMEOUT, DEADLINE, MARKER, MPI, STEP_SECONDS, STEPS, VARIANTS, Process, difference, kill_marked, marked, remove, results

CRASH = re.compile(r"terminate called|Segmentation fault|Bus error|Process received signal|HDF5-DIAG|what\(\):|Assertion|core dumped")
# Exit codes with which the program must explain itself in one line.
EXPLAINED = (1, 2, 3, 4, 5)
MARGIN = 30  # seconds, for a busy machine


def empty_folder(path):
    """Whether there is no file below. Open MPI leaves its folder for one process without mpirun."""
    return os.path.isdir(path) and not any(files for _, _, files in os.walk(path))


class Trial:
    """Kinds of faults get a Trial. They start a training, do harm, and call `expect` and `resume`."""

    def __init__(self, tools, seed, number, in_namespace):
        self.tools = tools
        self.rng = random.Random(f"{seed}/{number}")
        self.id = f"{os.getpid()}-{seed}-{number}"
        self.in_namespace = in_namespace  # /dev/shm is private, and tmpfs can be mounted
        self.folder = tools.folder / f"trial-{number}"
        self.run = self.folder / "run"
        self.tmp = self.folder / "tmp"
        self.ranks = self.rng.choice([1, 1, 2, 2, 3])
        self.variant = self.rng.choice(list(VARIANTS))
        self.options = self.random_options()
        self.detail, self.ending, self.problems, self.outputs = "", [], [], []
        self.killed = False  # a process was killed with -9: Open MPI then leaves files

    def random_options(self):
        """Keys that do not change the result."""
        rng = self.rng
        options = ["--checkpoint.every", rng.choice(["1", "3", "7"]), "--data.workers", rng.choice(["0", "1", "2"])]
        if self.variant != "conv":
            reader = rng.choice(["direct", "mmap", "mpio", "auto"])
            options += ["--data.reader", reader]
            options += ["--data.cache", "memory"] if reader != "mpio" and rng.random() < 0.3 else []
        if rng.random() < 0.3:
            options += ["--log.tensorboard", "on"]
        return options

    def prepare(self):
        self.folder.mkdir()
        self.tmp.mkdir()
        self.tools.furnish(self.folder)

    def describe(self):
        return f"{self.ranks} rank{'s' if self.ranks > 1 else ''} {self.variant} {' '.join(self.options[1::2])}"

    # ---- starting ----

    def start(self, options=(), env=None, wrap=(), launcher=None, slow=True, name="out"):
        """Starts the training. `wrap` is a command that starts the program on each rank."""
        if launcher is None:
            launcher = [] if self.ranks == 1 else [self.tools.mpiexec, "--bind-to", "none", "-n", str(self.ranks)]
        command = [*launcher, *wrap, self.tools.millrace, "train", "-c", "net.cfg", *DEADLINE, *VARIANTS[self.variant]]
        command += [*self.options, *options]
        if slow:
            command += ["--test.compute_delay", f"{STEP_SECONDS * self.ranks / 24:.6f}"]
        environment = {**os.environ, **MPI, MARKER: self.id, "TMPDIR": str(self.tmp), **(env or {})}
        process = Process(command, self.folder, environment, self.folder / f"{name}-{len(self.outputs)}")
        self.outputs.append(process)
        return process

    def faulty(self, faults, rank=None):
        """A command that starts a rank with these faults of faulty_calls.cpp."""
        wrap = ["env", f"LD_PRELOAD={self.tools.faulty_calls}", f"MILLRACE_TEST_CALLS={faults}"]
        return wrap + ([f"MILLRACE_TEST_CALLS_RANK={rank}"] if rank is not None else [])

    def steps(self):
        try:
            return (self.run / "metrics.jsonl").read_bytes().count(b"\n")
        except OSError:
            return 0

    def rank_pids(self):
        return {rank: pid for pid, rank, _ in marked(self.id, self.tools.millrace) if rank is not None}

    def pick_rank(self):
        """A living rank and its process id, or (None, None)."""
        pids = self.rank_pids()
        return self.rng.choice(sorted(pids.items())) if pids else (None, None)

    # ---- moments ----

    def at_random_moment(self, process, phases=("start", "step", "step", "step", "save")):
        """Waits for a random moment in one of these phases; false if the training ended before."""
        phase = self.rng.choice(phases)
        if phase == "start":
            delay = self.rng.uniform(0.02, 1.0)
            self.detail += f" {delay:.2f} s after the start"
            time.sleep(delay)
        elif phase == "step":
            self.wait_for_step(process, self.rng.randint(1, STEPS - 5))
            time.sleep(self.rng.uniform(0, STEP_SECONDS))
        else:
            self.wait_for_step(process, self.rng.randint(1, STEPS - 12))
            end = time.monotonic() + 5
            while process.alive() and time.monotonic() < end and not self.unfinished():
                time.sleep(0.0005)
            self.detail += " in a checkpoint"
        return process.alive()

    def wait_for_step(self, process, step, limit=90):
        self.detail += f" step {step}"
        end = time.monotonic() + limit
        while process.alive() and self.steps() < step:
            if time.monotonic() > end:
                self.problem(f"step {step} did not come within {limit} s")
                return
            time.sleep(0.003)

    def unfinished(self):
        """Temporary files in the run folder."""
        try:
            return [p.name for p in self.run.rglob("*") if ".tmp" in p.name or p.name.endswith(".part")]
        except OSError:
            return []

    # ---- judging ----

    def problem(self, text):
        self.problems.append(text)

    def expect(self, process, codes, limit=None, crashes=False):
        """Waits for the end, and checks the exit code, the lines on the terminal and what is left behind."""
        began = time.monotonic()
        limit = limit or COMM_TIMEOUT + 5 + MARGIN
        code = process.wait(limit)
        self.ending.append("hang" if code is None else str(code))
        if code is None:
            self.problem(f"no end within {limit} s")
            kill_marked(self.id)
            self.killed = True
            process.wait(20)
            return None
        self.ending[-1] += f" after {time.monotonic() - began:.1f} s" if time.monotonic() - began > 5 else ""
        if code not in codes:
            self.problem(f"exit code {code}, expected {' or '.join(map(str, codes))}")
        self.judge_lines(code, process.text(), crashes)
        self.judge_leftovers(code)
        return code

    def judge_lines(self, code, text, crashes):
        errors = [line for line in text.splitlines() if re.match(r"(\[rank .*\] )?error: ", line)]
        if code in EXPLAINED and len(errors) != 1:
            self.problem(f"{len(errors)} error lines with exit code {code}")
        if code in (0, 75) and errors:
            self.problem(f"an error line with exit code {code}: {errors[0]}")
        crash = CRASH.search(text)
        if crash and not crashes:
            self.problem(f"a crash: {crash.group(0)}")

    def judge_leftovers(self, code):
        end = time.monotonic() + 8
        while marked(self.id) and time.monotonic() < end:
            time.sleep(0.05)
        left = marked(self.id)
        if left:
            self.problem(f"processes left: {' '.join(name for _, _, name in left)}")
            kill_marked(self.id)
        if self.killed:
            return
        unfinished = [name for name in self.unfinished() if code in (0, 75) or not name.startswith(".step-")]
        if unfinished:
            self.problem(f"unfinished files: {' '.join(unfinished)}")
        for folder in self.memory_folders():
            left = [name for name in sorted(os.listdir(folder)) if name != "filler" and not empty_folder(os.path.join(folder, name))]
            if left:
                self.problem(f"left in {folder}: {' '.join(left[:4])}")

    def memory_folders(self):
        return [str(self.tmp)] + (["/dev/shm"] if self.in_namespace else [])

    def clear_memory_files(self):
        """Removes what processes left that were killed with -9: Open MPI's files, and copies of data.cache = memory, which
        a later start removes when they are a minute old."""
        for folder in self.memory_folders():
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                remove(path) if os.path.isdir(path) else os.unlink(path)

    def resume(self, codes=(0,), options=(), says=None):
        """Starts the same command without a fault and compares the result with the uninterrupted training."""
        self.clear_memory_files()
        self.killed = False
        process = self.start(options=options, slow=False, name="resumed")
        code = self.expect(process, codes, limit=120)
        if says and not re.search(says, process.text()):
            self.problem(f"the next start does not say '{says}'")
        if code == 0:
            self.compare()
        return code

    def compare(self):
        if any("reduces the gradients in private memory" in process.text() for process in self.outputs):
            self.ending.append("other sums")  # a start without shared memory rounds sums differently, and says so
            return
        try:
            wrong = difference(self.tools.reference(self.ranks, self.variant), results(self.tools.millrace, self.run))
        except (OSError, ValueError, KeyError, AttributeError) as error:
            wrong = f"no result: {error}"
        if re.match(r"(metrics|validation): \d+ entries instead", wrong) and any("lacks its last lines" in process.text() for process in self.outputs):
            self.ending.append("metrics cut short, with a warning")  # the disk was full until the end
        elif wrong:
            self.problem(f"not equal to the uninterrupted training: {wrong}")
        else:
            self.ending.append("equal")
