"""millrace beside PyTorch on the CPU, alternately in one run: cpu.py MILLRACE [--quick] [--only NAME]. Same resident batch, weights, optimizer;
of PyTorch the fastest of its memory formats, of eager and compiled, of fused and plain optimizers. Writes build/peers.json and prints a table."""
import argparse
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import h5py
import numpy
import torch

HERE = pathlib.Path(__file__).parent
# name, network, samples of a rank, millrace's keys, optimizer, rate, the goal for fp32 and bf16
CASES = [
    ("ResNet-18, CIFAR stem", "resnet18", 64, ["--model.name", "resnet", "--model.depth", "18", "--model.stem", "cifar"], "sgd", 0.01, (1.3, 1.6)),
    ("ResNet-20, CIFAR", "resnet20", 64, ["--model.name", "resnet", "--model.depth", "20"], "sgd", 0.01, (1.5, None)),
    ("MLP 2048-1024-1024-2", "mlp", 128, ["--model.name", "mlp", "--model.hidden", "1024 1024"], "adamw", 1e-4, (1.8, None)),
    ("one layer 2048-2", "linear", 128, ["--model.name", "mlp", "--model.hidden", ""], "adamw", 1e-4, (8, None)),
]
SETUPS = [(2, 1), (1, 2)]  # ranks, threads of each
MPIRUN = ["mpirun", "--bind-to", "none"]
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                   OMP_WAIT_POLICY="passive", OPENBLAS_CORETYPE=os.environ.get("OPENBLAS_CORETYPE", "Haswell"))


def output(command, **environment):
    done = subprocess.run(command, env=dict(ENVIRONMENT, **environment), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout


class Case:
    def __init__(self, millrace, folder, case, ranks, threads, precision, quick):
        self.name, self.network, self.rows, self.keys, self.optimizer, self.rate, goals = case
        self.millrace, self.folder, self.ranks, self.threads, self.precision = millrace, folder, ranks, threads, precision
        self.goal = goals[precision == "bf16"]
        self.batch = self.rows * ranks
        heavy = self.network.startswith("resnet")
        self.steps = (8 if quick else 30) if heavy else (60 if quick else 600)
        self.warmup = self.steps // 5
        self.data = folder / f"{self.network}-{self.batch}"
        self.number = 0
        if not self.data.exists():
            self.pack()
        self.weights = self.train(["--train.steps", "1"], rate=0)[0]
        self.first = self.train(["--train.steps", "3"])[1]

    def pack(self):
        noise = numpy.random.default_rng(1)
        shape = (32, 32, 3) if self.network.startswith("resnet") else (2048,)
        x = noise.integers(0, 256, (self.batch, *shape), dtype=numpy.uint8) if len(shape) > 1 else noise.standard_normal((self.batch, *shape), dtype=numpy.float32)
        y = (numpy.arange(self.batch) % (10 if len(shape) > 1 else 2)).astype(numpy.uint8)
        numpy.save(self.folder / "x.npy", x)
        numpy.save(self.folder / "y.npy", y)
        output([self.millrace, "pack", "--x", self.folder / "x.npy", "--y", self.folder / "y.npy", "--out", self.data, "--no-shuffle"])

    def train(self, more, rate=None):
        """The newest checkpoint, the losses and the seconds of every step."""
        self.number += 1
        run = self.folder / f"run-{self.network}-{self.ranks}-{self.precision}-{self.number}"
        output([*MPIRUN, "-n", str(self.ranks), self.millrace, "train", "-c", "/dev/null", "--data.train", str(self.data / "*.h5"), *self.keys,
                "--data.shuffle", "off", "--data.normalize", "on" if self.network.startswith("resnet") else "off", "--run.dir", str(run), "--run.threads", str(self.threads),
                "--run.precision", self.precision, "--train.global_batch", str(self.batch), "--train.micro_batch", str(self.rows),
                "--optim.name", self.optimizer, "--optim.lr", str(self.rate if rate is None else rate), "--optim.schedule", "constant", "--optim.weight_decay", "0",
                "--run.device", "cpu", "--checkpoint.every", "none", "--log.every", "1h", *more])
        lines = [json.loads(line) for line in open(run / "metrics.jsonl")]
        return next((run / "checkpoints").glob("*.h5")), [line["loss"] for line in lines], [line["step_ms"] / 1e3 for line in lines]

    def ours(self):
        return statistics.median(self.train(["--train.steps", str(self.steps)])[2][self.warmup:])

    def theirs(self, channels_last, compiled, fused, steps=None):
        with h5py.File(next(self.data.glob("*.h5"))) as f:
            x = f["x"]
            images = x.ndim == 4
            mean, std = (numpy.atleast_1d(x.attrs[k] if k in x.attrs else f.attrs[k]).tolist() for k in ("mean", "std")) if images else ([0], [1])
        steps = steps or self.steps
        order = {"network": self.network, "data": str(next(self.data.glob("*.h5"))), "weights": str(self.weights), "threads": self.threads,
                 "scale": 1 / 255 if images else 1, "mean": mean, "std": std, "channels_last": channels_last, "compile": compiled, "fused": fused,
                 "optimizer": self.optimizer, "lr": self.rate, "precision": self.precision, "steps": steps, "warmup": steps // 5,
                 "port": random.randrange(20000, 30000)}
        path = self.folder / "order.json"
        path.write_text(json.dumps(order))
        said = json.loads(output([*MPIRUN, "-n", str(self.ranks), sys.executable, str(HERE / "pytorch_rank.py"), str(path)],
                                 OMP_NUM_THREADS=str(self.threads)).splitlines()[-1])
        tolerance = 2e-5 if self.precision == "fp32" else 2e-2
        for a, b in zip(self.first, said["losses"]):
            if abs(a - b) > tolerance * max(1, abs(b)):
                sys.exit(f"{self.name}: not the same training: losses {self.first} here, {said['losses']} in PyTorch")
        return said["seconds"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("millrace")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="cases whose network begins so")
    parser.add_argument("--precision", nargs="*", default=["fp32", "bf16"])
    parser.add_argument("--out", default="build/peers.json")
    options = parser.parse_args()
    millrace = os.path.abspath(options.millrace)
    print(f"PyTorch {torch.__version__}, {os.cpu_count()} cores; samples/s, medians of alternating runs")
    print(f"{'network':24} {'type':5} {'ranks':>5} {'threads':>7} {'millrace':>10} {'PyTorch':>10} {'ratio':>6} {'goal':>5}  PyTorch's fastest")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for case, precision, (ranks, threads) in itertools.product(CASES, options.precision, SETUPS):
            if options.only and not case[1].startswith(options.only):
                continue
            c = Case(millrace, pathlib.Path(folder), case, ranks, threads, precision, options.quick)
            formats = [False, True] if c.network.startswith("resnet") else [False]
            ways = list(itertools.product(formats, [False, True], [False, True]))
            short = max(6, c.steps // 3)
            tried = {way: c.theirs(*way, steps=short) for way in ways}
            best = sorted(ways, key=tried.get)[:2]
            a, b = [], {way: [] for way in best}
            for _ in range(2 if options.quick else 3):
                a.append(c.ours())
                for way in best:
                    b[way].append(c.theirs(*way))
            way = min(best, key=lambda w: statistics.median(b[w]))
            ours, theirs = (c.batch / statistics.median(v) for v in (a, b[way]))
            words = ", ".join([["", "channels last"][way[0]] or "plain layout", "compiled" if way[1] else "eager", "fused optimizer" if way[2] else "plain optimizer"])
            results.append({"name": c.name, "precision": precision, "ranks": ranks, "threads": threads, "millrace": ours, "pytorch": theirs,
                            "ratio": ours / theirs, "goal": c.goal, "pytorch_way": words})
            print(f"{c.name:24} {precision:5} {ranks:5} {threads:7} {ours:10.0f} {theirs:10.0f} {ours / theirs:6.2f} {c.goal or '':>5}  {words}", flush=True)
    pathlib.Path(options.out).parent.mkdir(exist_ok=True)
    pathlib.Path(options.out).write_text(json.dumps(results, indent=2) + "\n")


main()
