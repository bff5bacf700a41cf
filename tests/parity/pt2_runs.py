#!/usr/bin/env python3
"""Trains exported networks with millrace and reads the losses. Needs no PyTorch.

    python3 tests/parity/pt2_runs.py MILLRACE MPIRUN RANKS [sgd|adamw|dropout|synchronised] [--recorded FOLDER]

Compares ten losses of each network of tests/fixtures/pt2, with SGD and AdamW, with those that PyTorch has computed in
float64: recorded/pt2_runs.json, written by pt2_record.py, or FOLDER with both. With two ranks, each normalises its half
of the batch by itself, and so did PyTorch. Losses with dropout are compared by their mean and deviation over many steps.
synchronised: model.sync_batch_norm on two or three ranks is compared with PyTorch's BatchNorm over the whole batch, because
PyTorch's SyncBatchNorm needs GPUs. Only networks with batch norms.
"""
import json
import math
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import zlib

TESTS = pathlib.Path(__file__).resolve().parent.parent
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_ess_singleton_isolated": "1"}
STEPS = 10
OPTIMIZERS = ("sgd", "adamw")
MOMENTUM = 0.9  # of SGD: the default of millrace
# Relative to the loss. Both compute in float32 or better, without dropout.
TOLERANCE = 1e-5
MASK = (1 << 64) - 1


def integers(name, count, below):
    """SplitMix64 of the index, in a sequence for each name: those of weights.py."""
    start = zlib.crc32(name.encode()) << 32
    out = []
    for i in range(1, count + 1):
        z = (i * 0x9E3779B97F4A7C15 + start) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        out.append(((z ^ (z >> 31)) >> 33) % below)
    return out


def samples_of(case):
    """uint8 values (rows, extents, channels), or a text in which each row begins with the last token of the one before."""
    count = case["rows"] * math.prod(case["sample"])
    if len(case["sample"]) == 1:
        return integers(case["name"] + " x", count + 1, case["outputs"])
    return integers(case["name"] + " x", count, 256)


def labels_of(case):
    """One for each row, or for each position of it. The last one is the highest class, which shows how many there are."""
    shape = label_shape(case)
    return integers(case["name"] + " y", math.prod(shape) - 1, case["outputs"]) + [case["outputs"] - 1]


def label_shape(case):
    return [case["rows"]] + (case["sample"][:-1] if case["target"] == "map" else [])


def write_npy(path, kind, shape, values):
    code = {"|u1": "B", "<i4": "i"}[kind]
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                     struct.pack(f"<{len(values)}{code}", *values))


class Program:
    """millrace, and the folder in which it runs."""

    def __init__(self, millrace, mpirun, folder):
        self.millrace, self.mpirun, self.folder = str(pathlib.Path(millrace).resolve()), mpirun, pathlib.Path(folder)

    def call(self, ranks, *words, fails=False):
        """What it prints. fails: the exit code may be another one than 0, and the line of the error is the result."""
        start = [self.mpirun, "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
        sessions = tempfile.mkdtemp(dir=self.folder)  # of MPI: two programs that start at the same moment share none
        environment = dict(os.environ, **ENVIRONMENT, OMPI_MCA_orte_tmpdir_base=sessions)
        done = subprocess.run([*start, self.millrace, *words], cwd=self.folder, env=environment, capture_output=True,
                              text=True)
        if fails and done.returncode:
            return next((line for line in done.stderr.splitlines() if line.startswith("error: ")), done.stderr[-500:])
        if done.returncode:
            sys.exit(f"{' '.join(words)}\nexit code {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
        return None if fails else done.stdout

    def pack(self, case):
        """Writes the samples and labels of a case; the keys that name them."""
        data = f"data-{case['name']}".replace("/", "-").replace(" ", "-")
        keys = ["--data.train", f"{data}/train-*.h5", "--data.shuffle", "off", "--data.normalize", "off"]
        if len(case["sample"]) == 1:
            text, window = samples_of(case), str(case["sample"][0])
            (self.folder / "x.bin").write_bytes(struct.pack(f"<{len(text)}H", *text))
            self.call(1, "pack", "--x", "x.bin", "--tokens", "uint16", "--context", window, "--no-shuffle", "--out",
                      data)
            return keys + ["--data.sample", "tokens", "--data.window", window, "--data.vocabulary",
                           str(case["outputs"]), "--data.token_labels", "every" if case["target"] == "next" else "last"]
        write_npy(self.folder / "x.npy", "|u1", [case["rows"]] + case["sample"], samples_of(case))
        write_npy(self.folder / "y.npy", "<i4", label_shape(case), labels_of(case))
        self.call(1, "pack", "--x", "x.npy", "--y", "y.npy", "--layout", "channels_last", "--no-shuffle", "--out", data)
        return keys

    def train(self, case, keys, ranks, steps, *more):
        """The folder of a run in which each step is computed with the same batch."""
        run = tempfile.mkdtemp(dir=self.folder)
        self.call(ranks, "train", "-c", "/dev/null", "--run.dir", run, *keys, "--run.device", "cpu", "--run.threads",
                  "1", "--model.name", "pt2", "--model.file", case["archive"], "--train.global_batch", str(case["rows"]),
                  "--train.steps", str(steps), "--optim.schedule", "constant", "--optim.weight_decay", "0",
                  "--checkpoint.every", "none", "--log.profile_steps", "0", *more)
        return pathlib.Path(run)

    def losses(self, case, keys, ranks, optimizer, *more):
        rate = {"sgd": "lr", "adamw": "adamw_lr"}[optimizer]
        run = self.train(case, keys, ranks, STEPS, "--optim.name", optimizer, "--optim.lr", str(case[rate]), *more)
        return losses_of(run)


def losses_of(run):
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def largest_error(losses, expected):
    assert len(losses) == len(expected) == STEPS, (len(losses), len(expected))
    return max(abs(a - b) / b for a, b in zip(losses, expected))


def deviates(losses, expected):
    """Of losses with dropout: how many standard errors the mean is off, and the ratio of the deviations."""
    error = expected["deviation"] / math.sqrt(len(losses))
    return abs(statistics.fmean(losses) - expected["mean"]) / error, statistics.stdev(losses) / expected["deviation"]


def has_batch_norms(case):
    """Whether it matters that the halves of a batch are normalised by themselves."""
    return any(abs(a / b - 1) > 1e-6 for losses in case.get("losses", {}).values()
               for a, b in zip(losses["whole"], losses["halves"]))


def compare(program, case, ranks, only):
    synchronised = ["--model.sync_batch_norm", "on"] if only == "synchronised" else []
    way = "whole" if ranks == 1 or synchronised else "halves"
    kinds = [kind for kind in (["dropout"] if "with_dropout" in case else OPTIMIZERS) if only in (None, kind)]
    if synchronised:
        kinds = OPTIMIZERS if has_batch_norms(case) else []
    keys = program.pack(case) if kinds else []
    fits = True
    for kind in kinds:
        if kind == "dropout":
            still = ["--optim.name", "sgd", "--optim.lr", "0"]
            losses = losses_of(program.train(case, keys, ranks, case["steps"], *still))
            off, ratio = deviates(losses, case["with_dropout"][way])
            fits = off < 4 and 0.85 < ratio < 1.15  # the deviation of 400 steps is known to 4 %
            text = f"mean off by {off:.1f} standard errors, deviation x {ratio:.3f}"
        else:
            error = largest_error(program.losses(case, keys, ranks, kind, *synchronised), case["losses"][kind][way])
            fits = fits and error < TOLERANCE
            text = f"largest error of a loss {error:.1e}"
        print(f"{case['name']:<10} {ranks} ranks  {kind:<7} {text}", flush=True)
    return fits


def main():
    words = sys.argv[1:]
    recorded, archives = TESTS / "parity" / "recorded" / "pt2_runs.json", TESTS / "fixtures" / "pt2"
    if "--recorded" in words:
        archives = pathlib.Path(words[-1]).resolve()
        recorded, words = archives / "pt2_runs.json", words[:-2]
    millrace, mpirun, ranks, only = words if len(words) == 4 else [*words, None]
    fits = True
    with tempfile.TemporaryDirectory() as folder:
        program = Program(millrace, mpirun, folder)
        for case in json.loads(recorded.read_text())["cases"]:
            case["archive"] = str(archives / case["archive"])
            fits = compare(program, case, int(ranks), only) and fits
    sys.exit(0 if fits else f"losses differ from PyTorch's by more than {TOLERANCE}")


if __name__ == "__main__":
    main()
