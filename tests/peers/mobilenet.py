"""MobileNetV2 (Sandler et al. 2018) as lines of `model.layers`, and the network that PyTorch makes of the same lines."""
from torch import nn

# expansion, channels, blocks, stride of the first one
STAGES = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def norm_of(conv, name, activation=True):
    return [f"{conv} as={name}", f"batchnorm as={name}_norm"] + ["relu6"] * activation


def block(name, inside, expansion, channels, stride):
    wide = inside * expansion
    lines = norm_of(f"conv {wide} 1", f"{name}_expand") if expansion > 1 else []
    lines += norm_of(f"conv {wide} 3 pad=1 stride={stride} groups={wide}", f"{name}_depthwise")
    lines += norm_of(f"conv {channels} 1", f"{name}_project", False)
    return ["residual {", *lines, "}"] if stride == 1 and inside == channels else lines


def lines():
    all_lines = norm_of("conv 32 3 pad=1 stride=2", "stem")
    inside = 32
    for stage, (expansion, channels, blocks, stride) in enumerate(STAGES, 1):
        for number in range(blocks):
            all_lines += block(f"stage{stage}_{number}", inside, expansion, channels, 1 if number else stride)
            inside = channels
    return all_lines + norm_of("conv 1280 1", "head") + ["globalpool", "linear outputs as=classes"]


class MobileNetV2(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.steps, inside = [], 3
        for line in lines():
            kind, *words = line.split()
            options = dict(word.split("=") for word in words if "=" in word)
            name = options.pop("as", None)
            stride, pad, groups = (int(options.get(key, default)) for key, default in (("stride", 1), ("pad", 0), ("groups", 1)))
            if kind == "conv":
                outside = int(words[0])
                self.add(name, nn.Conv2d(inside, outside, int(words[1]), stride, pad, groups=groups, bias=False))
                inside = outside
            elif kind == "batchnorm":
                self.add(name, nn.BatchNorm2d(inside))
            elif kind == "linear":
                self.add(name, nn.Linear(inside, classes))
            elif kind == "relu6":
                self.steps.append(nn.ReLU6(inplace=True))
            elif kind in ("residual", "}", "globalpool"):
                self.steps.append(kind)
            else:
                raise ValueError(line)

    def add(self, name, module):
        self.add_module(name, module)
        self.steps.append(module)

    def forward(self, x):
        for step in self.steps:
            if step == "residual":
                skip = x
            elif step == "}":
                x = x + skip
            elif step == "globalpool":
                x = x.mean((2, 3))
            else:
                x = step(x)
        return x
