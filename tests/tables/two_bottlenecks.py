"""Creates two bottlenecks at once, of random kinds and magnitudes. The larger one is the one whose removal gains more,
which runs with only the other one show. The first line of the verdict must name the larger one. Prints a table for
docs/benchmarks; fails if fewer than 80 % of the verdicts are right.

Usage: two_bottlenecks.py MILLRACE MPIEXEC FAULTY_FILES [--seed N] [--count N]"""
import argparse
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

STEPS = 180
CONFIG = """[run]
threads = 1
[data]
train = set/train-*.h5
reader = direct
workers = 1
[model]
hidden = 200 200
[train]
global_batch = 8
steps = {steps}
evaluate = off
[checkpoint]
every = none
[optim]
lr = 0.001
"""


class Kind:
    """A bottleneck: the first word of its verdict, the range of its magnitudes, and the keys and environment variables that
    create it."""

    def __init__(self, word, low, high, unit, keys=None, rank_keys=None, environment=None):
        self.word, self.low, self.high, self.unit = word, low, high, unit
        self.keys = keys or (lambda m: [])
        self.rank_keys = rank_keys or (lambda m: [])  # for rank 1 only
        self.environment = environment or (lambda m: {})


def kinds(library):
    def slow_reads(ms):
        return {"LD_PRELOAD": library, "MILLRACE_TEST_FAULTS": f"train-,4096,100000000,0,1000000000,{ms / 1e3}"}

    return {
        "slow reads": Kind("input-bound", 1, 12, "ms each", environment=slow_reads),
        "slow all-reduces": Kind("communication-bound", 20, 240, "ms a MB", keys=lambda m: ["--test.all_reduce_delay", f"{m / 1e3}"]),
        "checkpoints": Kind("checkpoint-bound", 1, 12, "steps apart", keys=lambda m: ["--checkpoint.every", str(round(m))]),
        "evaluation": Kind("evaluation-bound", 1, 12, "files", keys=lambda m: ["--train.evaluate", "on", "--data.valid", *(f"set/valid-{i}.h5" for i in range(round(m)))]),
        "a slow rank": Kind("imbalanced", 0.5, 10, "ms a sample", rank_keys=lambda m: ["--test.compute_delay", f"{m}ms"]),
    }


def run(options, planted, folder, probe):
    """Returns the seconds per step, including checkpoints and evaluation, and the output of the run."""
    keys, rank_keys, environment = [], [], dict(os.environ, OMPI_MCA_mpi_yield_when_idle="1")
    for kind, magnitude in planted:
        keys += kind.keys(magnitude)
        rank_keys += kind.rank_keys(magnitude)
        environment.update({f"OF_RANKS_{k}": v for k, v in kind.environment(magnitude).items()})
    script = folder / "rank"
    exports = "".join(f"export {k[len('OF_RANKS_'):]}='{v}'\n" for k, v in environment.items() if k.startswith("OF_RANKS_"))
    more = " ".join(rank_keys)
    script.write_text(f'#!/bin/bash\n{exports}more=\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && more="{more}"\nexec "{options.millrace}" "$@" $more\n')
    script.chmod(0o755)
    out = folder / f"run-{random.randrange(1 << 60)}"
    command = [options.mpiexec, "--bind-to", "none", "-n", "2", str(script), "train", "-c", "net.cfg", "--run.dir", str(out), *keys,
               "--account.probe", "on" if probe else "off"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    summary = json.loads((out / "summary.json").read_text())
    ranks = summary["account"]["ranks"]
    whole = [r["wall_seconds"] - r["seconds"]["startup"] for r in ranks]
    return max(whole) / summary["steps"], done.stdout


def first_word(said):
    """Returns the bound that the first line of the verdict names. The other lines are numbered and do not match."""
    words = re.findall(r"^(nothing worth changing|[a-z]+-bound|imbalanced): ", said, re.MULTILINE)
    return words[-1] if words else "nothing"


def main():
    parser = argparse.ArgumentParser()
    for name in ("millrace", "mpiexec", "library"):
        parser.add_argument(name)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--count", type=int, default=20)
    options = parser.parse_args()
    options.millrace = str(pathlib.Path(options.millrace).resolve())
    of = kinds(str(pathlib.Path(options.library).resolve()))
    draw = random.Random(options.seed)
    print(f"seed {options.seed}\n\n| planted | gains without it | and | gains without it | first line | the larger first |\n|---|---|---|---|---|---|")
    right = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "net.cfg").write_text(CONFIG.format(steps=STEPS))
        for part, rows in (("train", 240), ("valid", 2000)):
            with open(folder / f"{part}.csv", "w") as table:
                for r in range(rows):
                    table.write(",".join(str((r * 7 + c * c) % 13) for c in range(100)) + f",{r % 3}\n")
            subprocess.run([options.millrace, "pack", "--x", f"{part}.csv", "--y-name", "101", "--out", part], cwd=folder, check=True, capture_output=True)
        (folder / "set").mkdir()
        for file in (folder / "train").glob("*.h5"):
            file.rename(folder / "set" / file.name)
        valid = next((folder / "valid").glob("*.h5"))
        for i in range(13):
            os.link(valid, folder / "set" / f"valid-{i}.h5")
        for _ in range(options.count):
            names = draw.sample(sorted(of), 2)
            planted = [(of[n], math.exp(draw.uniform(math.log(of[n].low), math.log(of[n].high)))) for n in names]
            both, said = run(options, planted, folder, True)
            gains = [both / run(options, [planted[1 - i]], folder, False)[0] for i in (0, 1)]
            word, larger = first_word(said), planted[gains[1] > gains[0]][0].word
            right += word == larger
            cells = [f"{n}, {m:.2g} {k.unit} | {g:.2f}x" for n, (k, m), g in zip(names, planted, gains)]
            print(f"| {' | '.join(cells)} | {word} | {'yes' if word == larger else 'no'} |", flush=True)
    print(f"\n{right} of {options.count} name the larger one first")
    sys.exit(right < 0.8 * options.count)


main()
