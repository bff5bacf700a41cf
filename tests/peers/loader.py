"""millrace's loader beside PyTorch's DataLoader over h5py: the same contiguous HDF5 file, random samples in batches of 128, from the page cache."""
import re
import statistics
import time

import h5py
import numpy
import torch

import other_work

BATCH = 128
# Bytes of a sample, the goal.
SIZES = [(3 << 10, 10), (112 << 10, 2), (150 << 10, 2)]
ROW = re.compile(r"through the loader's ring +(\d+) samples/s")


class Samples(torch.utils.data.Dataset):
    """Opened by each worker for itself, when it is first asked: handles of HDF5 do not survive a fork."""

    def __init__(self, path, rows):
        self.path, self.rows, self.file = path, rows, None

    def __len__(self):
        return self.rows

    def __getitem__(self, row):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
            self.x, self.y = self.file["x"], self.file["y"]
        return torch.from_numpy(self.x[row]), int(self.y[row])


def write(path, size):
    rows = max(4 * BATCH, (384 << 20) // size)
    with h5py.File(path, "w") as f:
        x = f.create_dataset("x", (rows, size), "u1")
        noise = numpy.random.default_rng(1)
        for row in range(0, rows, 512):
            x[row:row + 512] = noise.integers(0, 256, (min(512, rows - row), size), dtype=numpy.uint8)
        f["y"] = numpy.zeros(rows, "i4")
        f.attrs["classes"] = 1
    return rows


def theirs(path, rows, workers, seconds):
    loader = torch.utils.data.DataLoader(Samples(path, rows), batch_size=BATCH, shuffle=True, num_workers=workers, drop_last=True)
    batches = iter(loader)
    for _ in range(3):  # workers have started
        next(batches)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        if next(batches, None) is None:
            batches = iter(loader)
            next(batches)
        count += 1
    return count * BATCH / (time.perf_counter() - began)


def compare(millrace, folder, output, quick, record):
    """Rows as those of cpu.py's table. output(command): what millrace prints."""
    print(f"\nloader beside torch.utils.data.DataLoader over h5py {h5py.__version__}, batches of {BATCH}, 2 workers of millrace; samples/s, medians of turns", flush=True)
    torch.set_num_threads(1)
    for size, goal in SIZES:
        path = folder / f"loader-{size}.h5"
        rows = write(path, size)

        def turns(path=path, rows=rows):
            ours, other = [], {workers: [] for workers in (0, 1, 2)}
            for _ in range(2 if quick else 5):
                said = output([millrace, "bench", "loader", "--repeats", "1", "--data.train", str(path), "--data.normalize", "off", "--data.workers", "2",
                               "--train.global_batch", str(BATCH), "--run.device", "cpu"])
                ours.append(float(ROW.search(said).group(1)))
                for workers, rates in other.items():
                    rates.append(theirs(path, rows, workers, 1 if quick else 2))
            return ours, other

        (ours, other), disturbance = other_work.measured_twice(turns)
        path.unlink()
        best = max(other, key=lambda w: statistics.median(other[w]))
        a, b = statistics.median(ours), statistics.median(other[best])
        name = f"loader, {size >> 10} KiB samples"
        record({"name": name, "precision": "u8", "ranks": 1, "threads": 2, "millrace": a, "pytorch": b, "ratio": a / b, "goal": goal,
                "pytorch_way": f"{best} workers", "pytorch_by_workers": {w: statistics.median(r) for w, r in other.items()}, "other_work": disturbance})
        print(f"{name:24} {'u8':5} {1:5} {2:7} {a:10.0f} {b:10.0f} {a / b:6.2f} {goal:>5}  "
              + ", ".join(f"{statistics.median(r):.0f} by {w} workers" for w, r in other.items()) + other_work.mark(disturbance), flush=True)
