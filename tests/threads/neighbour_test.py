"""neighbour_test.py MILLRACE: the single layer with one rank of two threads keeps 40 % of its rate while a busy loop uses one of two cores.
The best of alternating runs counts on both sides, because other work on the machine only slows them. A second attempt follows a first that fails."""
import array
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "peers"))
from neighbour import GOAL, neighbour  # noqa: E402

ROWS, FEATURES = 128, 2048
STEPS, TURNS, ATTEMPTS = 5000, 5, 2


def save_npy(path, kind, shape, values):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + values.tobytes())


def pack(millrace, folder):
    noise = random.Random(1)
    save_npy(folder / "x.npy", "<f4", (ROWS, FEATURES), array.array("f", (noise.uniform(-1, 1) for _ in range(ROWS * FEATURES))))
    save_npy(folder / "y.npy", "|u1", (ROWS,), array.array("B", (i % 2 for i in range(ROWS))))
    subprocess.run([millrace, "pack", "--x", folder / "x.npy", "--y", folder / "y.npy", "--out", folder / "data"], check=True, stdout=subprocess.DEVNULL)


def rate(millrace, folder, core):
    """Samples per second, from the time of all steps but the first."""
    run = folder / "run"
    with neighbour(core):
        subprocess.run([millrace, "train", "-c", "/dev/null", "--data.train", folder / "data/*.h5", "--data.normalize", "off", "--model.name", "mlp",
                        "--model.hidden", "", "--run.dir", run, "--run.device", "cpu", "--run.threads", "2", "--train.global_batch", str(ROWS),
                        "--train.micro_batch", str(ROWS), "--train.steps", str(STEPS), "--optim.name", "adamw", "--optim.lr", "1e-4",
                        "--checkpoint.every", "none", "--log.every", "1h"], check=True, stdout=subprocess.DEVNULL)
    seconds = [json.loads(line)["step_ms"] / 1e3 for line in open(run / "metrics.jsonl")][STEPS // 10:]
    shutil.rmtree(run)
    return ROWS * len(seconds) / sum(seconds)


def kept(millrace, folder, core):
    pairs = [(rate(millrace, folder, None), rate(millrace, folder, core)) for _ in range(TURNS)]
    alone, beside = (max(column) for column in zip(*pairs))
    print(f"samples per second: {alone:.0f} alone, {beside:.0f} beside a busy loop on core {core}: {beside / alone:.0%}", flush=True)
    return beside / alone


def main():
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("skipped: this test needs two cores")
        return 77
    os.sched_setaffinity(0, cores[:2])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        pack(sys.argv[1], folder)
        if any(kept(sys.argv[1], folder, cores[1]) >= GOAL for _ in range(ATTEMPTS)):
            return 0
    print(f"below {GOAL:.0%} in {ATTEMPTS} attempts")
    return 1


sys.exit(main())
