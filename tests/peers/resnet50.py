"""ResNet-50 training by PyTorch on this machine's GPU, for comparison with `millrace bench gpu`: channels-last, AMP fp16, SGD with momentum; eager
and torch.compile. Prints images/s (medians).

resnet50.py                on random data that already lies on the device, batch 256 and 512
resnet50.py --fed FOLDER   from FOLDER's images through a DataLoader with augmentation, batch 256
resnet50.py --write FOLDER only writes such images: x.npy (uint8, 224x224x3) and y.npy
--device cpu               tries the script out, on two images
"""
import argparse
import os
import statistics
import sys
import time


def resnet50(torch):
    nn = torch.nn

    class Bottleneck(nn.Module):
        def __init__(self, inside, width, stride):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
            self.skip = nn.Identity()
            if stride != 1 or inside != 4 * width:
                self.skip = nn.Sequential(nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

        def forward(self, x):
            return torch.relu_(self.body(x) + self.skip(x))

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(inside, width, stride if i == 0 else 1))
            inside = 4 * width
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))
    assert sum(p.numel() for p in net.parameters()) == 25_557_032
    return net


def batches_on_device(torch, device, batch):
    x = torch.randn(batch, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    y = torch.randint(1000, (batch,), device=device)
    while True:
        yield x, y


def batches_of_loader(torch, device, batch, folder):
    """Raw bytes to the device, flip and normalisation there: the fast way that a DataLoader allows."""
    import numpy

    x, y = (numpy.load(os.path.join(folder, name), mmap_mode="r") for name in ("x.npy", "y.npy"))

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            return torch.from_numpy(x[i].copy()), int(y[i])

    loader = torch.utils.data.DataLoader(Images(), batch, shuffle=True, drop_last=True, pin_memory=True, persistent_workers=True,
                                         num_workers=len(os.sched_getaffinity(0)))
    mean = torch.tensor([123.7, 116.3, 103.5], device=device).view(1, 3, 1, 1)
    deviation = torch.tensor([58.4, 57.1, 57.4], device=device).view(1, 3, 1, 1)
    while True:
        for images, labels in loader:
            images = images.to(device, non_blocking=True).permute(0, 3, 1, 2)  # channels-last as it lies
            flip = torch.rand(batch, 1, 1, 1, device=device) < 0.5
            images = torch.where(flip, images.flip(3), images)
            yield (images.float() - mean) / deviation, labels.to(device, non_blocking=True)


def measure(torch, device, batches, batch, compiled, steps, repeats):
    torch.manual_seed(1)
    torch._dynamo.reset()
    net = resnet50(torch).to(device).to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5)
    cuda = device == "cuda"
    scaler = torch.amp.GradScaler(device, enabled=cuda)
    run = torch.compile(net, dynamic=False) if compiled else net

    def step():
        x, y = next(batches)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.float16 if cuda else torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(run(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    def wait():
        if cuda:
            torch.cuda.synchronize()

    for _ in range(5 if cuda else 1):
        step()
    rates = []
    for _ in range(repeats):
        wait()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        rates.append(batch * steps / (time.perf_counter() - began))
    return statistics.median(rates)


def write(folder):
    import numpy

    random = numpy.random.default_rng(1)
    os.makedirs(folder, exist_ok=True)
    numpy.save(os.path.join(folder, "x.npy"), random.integers(0, 256, (2048, 224, 224, 3), dtype=numpy.uint8))
    numpy.save(os.path.join(folder, "y.npy"), random.integers(0, 1000, 2048, dtype=numpy.int64))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--fed", metavar="FOLDER")
    parser.add_argument("--write", metavar="FOLDER")
    args = parser.parse_args()
    if args.write:
        write(args.write)
        return 0
    import torch

    if args.device == "cuda" and not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        return 77
    torch.backends.cudnn.benchmark = True
    steps, repeats, sizes = (10, 3, (256, 512)) if args.device == "cuda" else (1, 1, (2,))
    for batch in sizes[:1] if args.fed else sizes:
        for compiled in (False, True) if args.device == "cuda" else (False,):
            batches = (batches_of_loader(torch, args.device, batch, args.fed) if args.fed
                       else batches_on_device(torch, args.device, batch))
            rate = measure(torch, args.device, batches, batch, compiled, steps, repeats)
            print(f"PyTorch {torch.__version__} {'torch.compile' if compiled else 'eager'}, batch {batch}, AMP"
                  f"{', fed by a DataLoader' if args.fed else ''}: {rate:.1f} images/s", flush=True)
            batches.close()
            del batches
            if args.device == "cuda":
                torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
