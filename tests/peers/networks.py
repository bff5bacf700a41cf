"""The networks of the comparisons in PyTorch, with the names that torchvision and millrace's checkpoints give their weights."""
from collections import OrderedDict

import torch
from torch import nn

from mobilenet import MobileNetV2
from zoo import CosmoFlow, GPT2, UNet, ViT


class Basic(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or inside != width:
            self.downsample = nn.Sequential(nn.Conv2d(inside, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        skip = x if self.downsample is None else self.downsample(x)
        x = torch.relu_(self.bn1(self.conv1(x)))
        return torch.relu_(self.bn2(self.conv2(x)) + skip)


class ResNet(nn.Module):
    """CIFAR's stem; widths and counts of blocks by stage."""

    def __init__(self, widths, blocks, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        inside = widths[0]
        self.stages = len(widths)
        for stage, width in enumerate(widths):
            layers = []
            for block in range(blocks):
                layers.append(Basic(inside, width, 2 if stage and not block else 1))
                inside = width
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inside, classes)

    def forward(self, x):
        x = torch.relu_(self.bn1(self.conv1(x)))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


def mlp(*widths):
    layers = OrderedDict()
    for i, (inside, outside) in enumerate(zip(widths, widths[1:]), 1):
        layers[f"fc{i}"] = nn.Linear(inside, outside)
        if i + 1 < len(widths):
            layers[f"relu{i}"] = nn.ReLU(inplace=True)
    return nn.Sequential(layers)


NETWORKS = {
    "resnet18": lambda: ResNet((64, 128, 256, 512), 2),
    "resnet20": lambda: ResNet((16, 32, 64), 3),
    "mlp": lambda: mlp(2048, 1024, 1024, 2),
    "gpt2": GPT2,
    "vit": ViT,
    "mobilenet": MobileNetV2,
    "unet": UNet,
    "cosmoflow": CosmoFlow,
    "linear": lambda: mlp(2048, 2),
}
