"""ResNet-50 training by PyTorch on this machine's GPU, for comparison with `millrace bench gpu`: channels-last, AMP fp16, synthetic data that
already lies on the device, SGD with momentum; eager and torch.compile. Prints images/s (medians)."""
import statistics
import sys
import time

import torch
from torch import nn


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


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(inside, width, stride if i == 0 else 1))
            inside = 4 * width
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))
    assert sum(p.numel() for p in net.parameters()) == 25_557_032
    return net


def measure(batch, compiled, steps=20):
    torch.manual_seed(1)
    net = resnet50().cuda().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5)
    scaler = torch.amp.GradScaler("cuda")
    x = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(1000, (batch,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16):
            loss = nn.functional.cross_entropy(run(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    run = torch.compile(net) if compiled else net
    for _ in range(5):
        step()
    rates = []
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        rates.append(batch * steps / (time.perf_counter() - began))
    return statistics.median(rates)


def main():
    if not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        return 77
    torch.backends.cudnn.benchmark = True
    for batch in (256, 512):
        for compiled in (False, True):
            name = "torch.compile" if compiled else "eager"
            print(f"PyTorch {torch.__version__} {name}, batch {batch}, AMP fp16: {measure(batch, compiled):.0f} images/s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
