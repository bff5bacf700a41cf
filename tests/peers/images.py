"""millrace's decoding of JPEG beside PyTorch's DataLoader with Pillow, as many workers each: images of 500x375 to 224x224, the middle of the image with
its short side at 256, or random parts from 0.08 of the area on, as torchvision's RandomResizedCrop takes them."""
import io
import math
import random
import re
import statistics
import time

import numpy
import PIL
import torch
from PIL import Image

import other_work

BATCH = 32
COUNT = 256
GOAL = 1.5
ROW = re.compile(r"loader, \d+ workers? +(\d+) samples/s")


def picture(seed):
    """Noise of every scale, the coarse the stronger, as in photographs."""
    noise = numpy.random.default_rng(seed)
    sum_ = numpy.zeros((375, 500, 3), "f4")
    for step in (2, 4, 8, 16, 32, 64, 128):
        small = noise.integers(0, 256, (375 // step + 2, 500 // step + 2, 3), dtype=numpy.uint8)
        sum_ += step ** 0.7 * (numpy.asarray(Image.fromarray(small).resize((500, 375), Image.BICUBIC), "f4") - 128)
    sum_ *= 60 / sum_.std()
    return Image.fromarray(numpy.clip(sum_ + 128, 0, 255).astype("u1"))


def write(folder):
    total = 0
    for i in range(COUNT):
        path = folder / f"{i % 8}" / f"{i:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(i).save(path, quality=90)
        total += path.stat().st_size
    return total / COUNT


class Samples(torch.utils.data.Dataset):
    def __init__(self, folder, zoom):
        self.paths, self.zoom = sorted(folder.glob("*/*.jpg")), zoom

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with open(self.paths[i], "rb") as f:
            image = Image.open(io.BytesIO(f.read())).convert("RGB")
        width, height = image.size
        if self.zoom:
            area, shape = random.uniform(self.zoom, 1) * width * height, math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = min(width, round(math.sqrt(area * shape))), min(height, round(math.sqrt(area / shape)))
            x, y = random.randint(0, width - w), random.randint(0, height - h)
            image = image.crop((x, y, x + w, y + h)).resize((224, 224), Image.BILINEAR)
        else:
            short = min(width, height)
            image = image.resize((width * 256 // short, height * 256 // short), Image.BILINEAR)
            x, y = (image.width - 224) // 2, (image.height - 224) // 2
            image = image.crop((x, y, x + 224, y + 224))
        return torch.from_numpy(numpy.asarray(image).copy()), 0


def theirs(folder, zoom, workers, seconds):
    loader = torch.utils.data.DataLoader(Samples(folder, zoom), batch_size=BATCH, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=True)
    for _ in loader:  # workers have started
        pass
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for batch in loader:
            count += len(batch[0])
    return count / (time.perf_counter() - began)


def compare(millrace, folder, output, quick, record):
    """Rows as those of cpu.py's table. output(command): what millrace prints."""
    photos, shards = folder / "photos", folder / "shards"
    size = write(photos)
    output([millrace, "pack", "--x", photos, "--encoded", "--out", shards])
    torch.set_num_threads(1)
    print(f"\nJPEG of 500x375, {size / 1024:.0f} KiB, to 224x224, beside DataLoader with Pillow {PIL.__version__}, as many workers each; samples/s, medians of turns", flush=True)
    for zoom in (0, 0.08):
        for workers in (1, 2):

            def turns(zoom=zoom, workers=workers):
                a, b = [], []
                for _ in range(2 if quick else 5):
                    said = output([millrace, "bench", "loader", "--data", str(shards / "*.h5"), "--resize", "256", "--crop", "224", "--zoom", str(zoom),
                                   "--workers", str(workers), "--repeats", "2"])
                    a.append(float(ROW.search(said).group(1)))
                    b.append(theirs(photos, zoom, workers, 1 if quick else 2))
                return a, b

            (a, b), disturbance = other_work.measured_twice(turns)
            ours, other = statistics.median(a), statistics.median(b)
            name = f"JPEG, {'random parts' if zoom else 'the middle'}"
            record({"name": name, "precision": "u8", "ranks": 1, "threads": workers, "millrace": ours, "pytorch": other, "ratio": ours / other, "goal": GOAL,
                    "pytorch_way": f"{workers} workers", "other_work": disturbance})
            print(f"{name:24} {'u8':5} {1:5} {workers:7} {ours:10.0f} {other:10.0f} {ours / other:6.2f} {GOAL:>5}{other_work.mark(disturbance)}", flush=True)
