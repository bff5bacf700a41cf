"""Injects faults into short trainings at random moments, and judges how they end.

Usage: faults.py --millrace FILE --mpiexec FILE --faulty-calls FILE [--trials N] [--seed S] [--kind K...] [--trial I...]

`make faults N=200 SEED=7 KIND="kill-rank full-tmpdir" TRIAL=12` starts it. Each trial has its own random numbers, made of
the seed and its number, so that TRIAL repeats one. It trains a tiny network on 1 to 3 ranks for about three seconds, does
harm, and checks:

- the exit code, and that there is exactly one line with an error, where the code asks for one;
- the time until the end: a training that does not end is a hang;
- that no process, file in /dev/shm or TMPDIR, or unfinished file in the run folder is left;
- after the next start: metrics without gaps or doubles, and metrics, evaluations and tensors that equal those of an
  uninterrupted training bit for bit.

As root it works in a mount namespace of its own, with its own /dev/shm. Otherwise kinds that need small file systems are
left out. It prints a line per trial and a table, and exits with 1 if any ending is wrong.

runs.py starts trainings, trial.py judges them, and kinds_*.py have the faults, a file for each group.
"""

import argparse
import ctypes
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import traceback

import kinds_calls  # noqa: F401  (registers its kinds)
import kinds_damage  # noqa: F401
import kinds_full  # noqa: F401
import kinds_signals  # noqa: F401
from kinds import KINDS
from runs import Tools, kill_marked, remove
from trial import Trial


def arguments():
    parser = argparse.ArgumentParser(description="Injects faults into short trainings.")
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--mpiexec", default="mpirun")
    parser.add_argument("--faulty-calls", required=True, help="the library of faulty_calls.cpp")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", default="")
    parser.add_argument("--kind", nargs="*", default=[])
    parser.add_argument("--trial", nargs="*", type=int, default=[], help="only these numbers")
    parser.add_argument("--keep", action="store_true", help="keep the folders of wrong trials")
    return parser.parse_args()


def private_namespace():
    """Moves this process to a mount namespace with its own /dev/shm; false if that is not allowed."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(0x00020000) != 0:  # CLONE_NEWNS
        return False
    commands = [["mount", "--make-rprivate", "/"], ["mount", "-t", "tmpfs", "-o", "size=1g", "millrace-faults", "/dev/shm"]]
    return all(subprocess.run(c, check=False, capture_output=True).returncode == 0 for c in commands)


def chosen_kinds(options, in_namespace):
    unknown = [name for name in options.kind if name not in KINDS]
    if unknown:
        sys.exit(f"unknown kind {unknown[0]}. known: {' '.join(KINDS)}")
    names = options.kind or list(KINDS)
    left_out = [name for name in names if KINDS[name].needs_root and not in_namespace]
    if left_out:
        print(f"left out, because they need root and mount namespaces: {' '.join(left_out)}")
    return [name for name in names if name not in left_out]


def run_trial(tools, seed, number, name, in_namespace, keep):
    """Prints the line of the trial, and returns whether the ending was right."""
    trial = Trial(tools, seed, number, in_namespace)
    trial.prepare()
    began = time.monotonic()
    try:
        KINDS[name].run(trial)
    except Exception as error:  # a defect of this program must not hide the other trials
        trial.problem(f"{type(error).__name__}: {error} ({traceback.format_exc().splitlines()[-3].strip()})")
    finally:
        kill_marked(trial.id)
        trial.clear_memory_files()
    right = not trial.problems
    print(
        f"SEED={seed} TRIAL={number} {name} [{trial.describe()}]{trial.detail}: {', '.join(trial.ending)}; "
        f"{'right' if right else 'WRONG: ' + '; '.join(trial.problems)} ({time.monotonic() - began:.1f} s)",
        flush=True,
    )
    if not right:
        for process in trial.outputs:
            said = [line for line in process.text().splitlines() if not line.startswith(("--", "Primary job", "a non-zero"))]
            print(f"    | {process.code}:", *(f"    | {line[:300]}" for line in said[-8:]), sep="\n")
    if right or not keep:
        remove(trial.folder)
    return right


def print_table(results):
    print("\n| kind | trials | right | wrong |\n|---|---|---|---|")
    for name in KINDS:
        if name in results:
            right, wrong = results[name].count(True), results[name].count(False)
            print(f"| {name} | {right + wrong} | {right} | {wrong or ''} |")
    every = [right for list_ in results.values() for right in list_]
    print(f"| all | {len(every)} | {every.count(True)} | {every.count(False) or ''} |")
    return every.count(False)


def main():
    options = arguments()
    sys.stdout.reconfigure(line_buffering=True)
    seed = options.seed or str(random.SystemRandom().randrange(10**6))
    in_namespace = private_namespace()
    names = chosen_kinds(options, in_namespace)
    random.Random(seed).shuffle(names)
    print(f"seed {seed}, {options.trials} trials of {len(names)} kinds")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="millrace-faults-"))
    results = {}
    try:
        tools = Tools(options.millrace, options.mpiexec, options.faulty_calls, folder)
        tools.pack()
        for number in options.trial or range(options.trials):
            name = names[number % len(names)]
            results.setdefault(name, []).append(run_trial(tools, seed, number, name, in_namespace, options.keep))
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        if not options.keep:
            remove(folder)
    return 1 if print_table(results) or not results else 0


if __name__ == "__main__":
    sys.exit(main())
