"""millrace beside PyTorch on the CPU, alternately in one run: cpu.py BUILD [--quick] [--only NETWORK]. Same resident batch, weights, optimizer;
of PyTorch the fastest of its memory formats, of eager and compiled, of fused and plain optimizers. Prints a table and writes BUILD/peers.json;
then millrace's own scaling from one rank to two, and its loader and its decoding of JPEG beside PyTorch's. A row during which other work had more than 5 %
of the cores is measured once more, and otherwise marked. BUILD/peers-DATE.md holds the rows that count."""
import argparse
import datetime
import itertools
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import typing

import h5py
import numpy
import torch

import images
import loader
import mobilenet
import neighbour
import other_work

HERE = pathlib.Path(__file__).parent
TOKENS = ["--data.sample", "tokens", "--data.token_labels", "every", "--data.window", "128", "--data.stride", "128"]
AMX = "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text()
# name, network, samples of a rank, millrace's keys, optimizer, rate, the goals for fp32 and bf16 with 2 ranks and with 1
CASES = [
    ("ResNet-18, CIFAR stem", "resnet18", 64, ["--model.name", "resnet", "--model.depth", "18", "--model.stem", "cifar"], "sgd", 0.01,
     ((1.5, 1.5), (1.8, 1.8) if AMX else (1.15, 1.15))),
    ("ResNet-20, CIFAR", "resnet20", 64, ["--model.name", "resnet", "--model.depth", "20"], "sgd", 0.01, ((1.5, 1.5), (None, None))),
    ("MLP 2048-1024-1024-2", "mlp", 128, ["--model.name", "mlp", "--model.hidden", "1024 1024"], "adamw", 1e-4, ((1.8, 1.6), (1.6, 1.6))),
    ("GPT-2 tiny, 128 bytes", "gpt2", 16, ["--model.name", "gpt2", "--model.size", "tiny", *TOKENS], "adamw", 1e-4, ((1.3, 1.3), (1.3, 1.3))),
    ("ViT tiny, 224x224", "vit", 8, ["--model.name", "vit", "--model.size", "tiny"], "adamw", 1e-5, ((1.3, 1.3), (1.3, 1.3))),
    ("MobileNetV2, 128x128", "mobilenet", 32, ["--model.name", "layers", *(word for line in mobilenet.lines() for word in ("--model.layers", line))], "sgd", 1e-4,
     ((None, None), (None, None))),
    ("U-Net, 16 to 128", "unet", 8, ["--model.name", "unet", "--model.width", "16"], "adamw", 1e-4, ((1.3, 1.3), (1.3, 1.3))),
    ("CosmoFlow, 16 to 256", "cosmoflow", 2, ["--model.name", "cosmoflow", "--model.width", "16"], "sgd", 1e-3, ((1.3, 1.3), (1.3, 1.3))),
    ("one layer 2048-2", "linear", 128, ["--model.name", "mlp", "--model.hidden", ""], "adamw", 1e-4, ((8, 3.5), (None, None))),
]
WEAK_GOALS = {"resnet18": 0.97, "mlp": 0.85}  # of the speed of one rank, for each of two
SETUPS = [(2, 1), (1, 2)]  # ranks, threads of each
MPIRUN = ["mpirun", "--bind-to", "none"]
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                   OPENBLAS_CORETYPE=os.environ.get("OPENBLAS_CORETYPE", "Haswell"))


class Way(typing.NamedTuple):
    """How PyTorch is run."""
    channels_last: bool
    compiled: bool
    fused: bool
    spins: bool  # threads that wait: by libgomp's default, else OMP_WAIT_POLICY=passive

    def __str__(self):
        words = ["channels last"] * self.channels_last + ["compiled" if self.compiled else "eager", "fused optimizer" if self.fused else "plain optimizer"]
        return ", ".join(words + ["passive waits"] * (not self.spins))


def output(command, **environment):
    done = subprocess.run(command, env=dict(ENVIRONMENT, **environment), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout


class Case:
    def __init__(self, millrace, folder, case, ranks, threads, precision, quick, rows=None):
        self.name, self.network, self.rows, self.keys, self.optimizer, self.rate, goals = case
        self.rows = rows or self.rows
        self.millrace, self.folder, self.ranks, self.threads, self.precision = millrace, folder, ranks, threads, precision
        self.goal = goals[precision == "bf16"][ranks == 1]
        self.batch = self.rows * ranks
        self.images = self.network.startswith("resnet") or self.network in ("vit", "mobilenet", "unet")
        self.steps = {"resnet18": 10, "vit": 10, "mobilenet": 10, "unet": 10, "cosmoflow": 10, "resnet20": 30, "gpt2": 30}.get(self.network, 600)
        if quick:
            self.steps = max(5, self.steps // 5)
        self.warmup = self.steps // 5
        self.data = folder / f"{self.network}-{self.batch}"
        if not self.data.exists():
            self.pack()

    def agree_on_the_start(self):
        self.weights = self.train(["--train.steps", "1"], rate=0)[0]
        self.first = self.train(["--train.steps", "3"])[1]

    def pack(self):
        noise = numpy.random.default_rng(1)
        shape, labels = {"mlp": ((2048,), 2), "linear": ((2048,), 2), "vit": ((224, 224, 3), 10), "unet": ((128, 128, 3), 4), "mobilenet": ((128, 128, 3), 10),
                         "cosmoflow": ((64, 64, 64, 4), 0), "gpt2": ((129,), 256)}.get(self.network, ((32, 32, 3), 10))
        if self.network == "gpt2":
            self.data.mkdir()
            with h5py.File(self.data / "text.h5", "w") as f:
                f["x"] = noise.integers(0, labels, (self.batch, *shape), dtype=numpy.uint8)
                f.attrs["classes"] = labels
            return
        images = len(shape) == 3
        x = noise.integers(0, 256, (self.batch, *shape), dtype=numpy.uint8) if images else noise.standard_normal((self.batch, *shape), dtype=numpy.float32)
        y = (numpy.arange(self.batch) % max(labels, 1)).astype(numpy.uint8)
        y[-1] = max(labels, 1) - 1  # also in a batch of fewer rows than classes
        if self.network == "unet":
            y = noise.integers(0, labels, (self.batch, *shape[:2]), dtype=numpy.uint8)
        elif self.network == "cosmoflow":
            y = noise.standard_normal((self.batch, 4), dtype=numpy.float32)
        numpy.save(self.folder / "x.npy", x)
        numpy.save(self.folder / "y.npy", y)
        layout = [] if len(shape) == 1 else ["--layout", "channels_last"]
        output([self.millrace, "pack", "--x", self.folder / "x.npy", "--y", self.folder / "y.npy", "--out", self.data, "--no-shuffle", *layout])

    def train(self, more, rate=None):
        """The checkpoint, the losses and the seconds of every step."""
        run = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        output([*MPIRUN, "-n", str(self.ranks), self.millrace, "train", "-c", "/dev/null", "--data.train", str(self.data / "*.h5"), *self.keys,
                "--data.shuffle", "off", "--data.normalize", "on" if self.images else "off", "--run.dir", str(run), "--run.threads", str(self.threads),
                "--run.precision", self.precision, "--train.global_batch", str(self.batch), "--train.micro_batch", str(self.rows),
                "--optim.name", self.optimizer, "--optim.lr", str(self.rate if rate is None else rate), "--optim.schedule", "constant", "--optim.weight_decay", "0",
                "--run.device", "cpu", "--checkpoint.every", "none", "--log.every", "1h", *more])
        lines = [json.loads(line) for line in open(run / "metrics.jsonl")]
        return next((run / "checkpoints").glob("*.h5")), [line["loss"] for line in lines], [line["step_ms"] / 1e3 for line in lines]

    def ours(self):
        return statistics.median(self.train(["--train.steps", str(self.steps)])[2][self.warmup:])

    def theirs(self, way, steps=None):
        with h5py.File(next(self.data.glob("*.h5"))) as f:
            x = f["x"]
            mean, std = (numpy.atleast_1d(x.attrs[k] if k in x.attrs else f.attrs[k]).tolist() for k in ("mean", "std")) if self.images else ([0], [1])
        steps = steps or self.steps
        order = {"network": self.network, "data": str(next(self.data.glob("*.h5"))), "weights": str(self.weights), "threads": self.threads,
                 "scale": 1 / 255 if self.images else 1, "mean": mean, "std": std, "channels_last": way.channels_last, "compile": way.compiled, "fused": way.fused,
                 "optimizer": self.optimizer, "lr": self.rate, "precision": self.precision, "steps": steps, "warmup": steps // 5,
                 "port": random.randrange(20000, 30000)}
        path = self.folder / "order.json"
        path.write_text(json.dumps(order))
        said = json.loads(output([*MPIRUN, "-n", str(self.ranks), sys.executable, str(HERE / "pytorch_rank.py"), str(path)],
                                 OMP_NUM_THREADS=str(self.threads), **({} if way.spins else {"OMP_WAIT_POLICY": "passive"})).splitlines()[-1])
        if "unsupported" in said:
            return math.inf
        # Rounding grows with every update: PyTorch's own memory formats differ by 3e-7, 3e-6 and 8e-5 in the first three steps of ResNet-18.
        tolerance = 2e-5 if self.precision == "fp32" else 2e-2
        for step, (a, b) in enumerate(zip(self.first, said["losses"])):
            if abs(a - b) > tolerance * 4 ** step * max(1, abs(b)):
                sys.exit(f"{self.name}: not the same training: losses {self.first} here, {said['losses']} in PyTorch")
        return said["seconds"]


def compare(millrace, folder, options, record):
    print(f"PyTorch {torch.__version__}, {os.cpu_count()} cores; samples/s, medians of alternating runs")
    print(f"{'network':24} {'type':5} {'ranks':>5} {'threads':>7} {'millrace':>10} {'PyTorch':>10} {'ratio':>6} {'goal':>5}  PyTorch's fastest")
    for case, precision, (ranks, threads) in itertools.product(CASES, options.precision, SETUPS):
        if (options.only and not case[1].startswith(options.only)) or (options.ranks and ranks != options.ranks):
            continue
        c = Case(millrace, folder, case, ranks, threads, precision, options.quick)
        c.agree_on_the_start()
        formats = [False, True] if c.images or c.network == "cosmoflow" else [False]

        def two_fastest_ways(c=c, formats=formats, threads=threads):
            tried = {way: c.theirs(way, max(5, c.steps // 3)) for way in (Way(f, compiled, True, threads > 1) for f in formats for compiled in (False, True))}
            fastest = min(tried, key=tried.get)
            for other in [fastest._replace(fused=False)] + [fastest._replace(spins=False)] * (threads > 1):
                tried[other] = c.theirs(other, max(5, c.steps // 3))
            return [way for way in sorted(tried, key=tried.get) if tried[way] < math.inf][:2]

        best, other_before = other_work.measured_twice(two_fastest_ways)

        def turns(c=c, best=best):
            a, b = [], {way: [] for way in best}
            for _ in range(options.turns):
                a.append(c.ours())
                for way in best:
                    b[way].append(c.theirs(way))
            return a, b

        (a, b), other = other_work.measured_twice(turns)
        other = max(other, other_before)
        way = min(best, key=lambda w: statistics.median(b[w]))
        ours, theirs = (c.batch / statistics.median(v) for v in (a, b[way]))
        record({"name": c.name, "precision": precision, "ranks": ranks, "threads": threads, "millrace": ours, "pytorch": theirs,
                "ratio": ours / theirs, "goal": c.goal, "pytorch_way": str(way), "other_work": other})
        print(f"{c.name:24} {precision:5} {ranks:5} {threads:7} {ours:10.0f} {theirs:10.0f} {ours / theirs:6.2f} {c.goal or '':>5}  {way}{other_work.mark(other)}", flush=True)


def scale(millrace, folder, options, record):
    """One rank of one thread against two, in float32: as many samples for each rank (weak), and in all (strong)."""
    print("\nfrom one rank to two, one thread each, fp32: efficiency")
    for case in CASES:
        if options.only and not case[1].startswith(options.only):
            continue
        one, weak, strong = (Case(millrace, folder, case, ranks, 1, "fp32", options.quick, rows) for ranks, rows in ((1, case[2]), (2, case[2]), (2, case[2] // 2)))
        times, other = other_work.measured_twice(lambda: [[c.ours() for c in (one, weak, strong)] for _ in range(options.turns)])
        a, w, s = (statistics.median(column) for column in zip(*times))
        record({"name": one.name, "precision": "fp32", "ranks": 2, "threads": 1, "weak": a / w, "strong": a / s / 2, "goal": WEAK_GOALS.get(one.network),
                "alone_ms": a * 1e3, "weak_ms": w * 1e3, "strong_ms": s * 1e3, "other_work": other})
        print(f"{one.name:24} weak {a / w:6.1%}   strong {a / s / 2:6.1%}   a step: {a * 1e3:.2f} ms alone, {w * 1e3:.2f} ms and {s * 1e3:.2f} ms by two{other_work.mark(other)}", flush=True)


def beside_neighbour(millrace, folder, options, record):
    chosen = {case[1]: case for case in CASES if case[1] in neighbour.STEPS and (not options.only or case[1].startswith(options.only))}
    setups = [setup for setup in SETUPS if options.ranks in (None, setup[0])]
    neighbour.compare(lambda network, ranks, threads: Case(millrace, folder, chosen[network], ranks, threads, "fp32", options.quick), chosen, setups,
                      1 if options.quick else 3, record)


def recorder(build):
    """What keeps a row: it writes all rows so far to peers.json and to the dated report, so a run that fails later loses none."""
    rows, now = [], datetime.datetime.now(datetime.timezone.utc)
    page = build / f"peers-{now:%Y-%m-%d-%H%M}.md"
    command = f'make peers OPTIONS="{" ".join(sys.argv[2:])}"' if sys.argv[2:] else "make peers"

    def record(row):
        rows.append(row)
        (build / "peers.json").write_text(json.dumps(rows, indent=2) + "\n")
        page.write_text(other_work.report(rows, command, f"PyTorch {torch.__version__}", now))

    return record, page


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--quick", action="store_true", help="fewer steps and turns")
    parser.add_argument("--only", help="the cases whose network begins so: resnet18, resnet20, mlp, gpt2, vit, mobilenet, unet, cosmoflow, linear; loader or images")
    parser.add_argument("--precision", nargs="*", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--ranks", type=int, choices=[1, 2], help="only the rows of so many")
    parser.add_argument("--neighbour", action="store_true", help="only the training beside a busy neighbour, without PyTorch")
    parser.add_argument("--turns", type=int, help="runs of each side for a row of the training; without it 3, and 2 with --quick")
    options = parser.parse_args()
    if options.turns is None:
        options.turns = 2 if options.quick else 3
    elif options.turns < 1:
        parser.error("--turns must be at least 1")
    build = pathlib.Path(options.build).resolve()
    record, page = recorder(build)
    with tempfile.TemporaryDirectory() as folder:
        parts = [beside_neighbour] if options.neighbour else [compare, scale, beside_neighbour]
        for part in parts:
            part(build / "millrace", pathlib.Path(folder), options, record)
        if options.neighbour:
            options.only = "neighbour"
        for name, part in (("loader", loader), ("images", images)):
            if not options.only or options.only == name:
                part.compare(build / "millrace", pathlib.Path(folder), output, options.quick, record)
    if not page.exists():
        parser.error(f"--only {options.only}: there is no such row")
    print(f"\n{page}")


main()
