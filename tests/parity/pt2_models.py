#!/usr/bin/env python3
"""Exports small networks of PyTorch, and records what PyTorch computes with them.

    python3 tests/parity/pt2_models.py        needs PyTorch 2.9 or newer; run it in the top folder

Writes tests/fixtures/pt2/NAME.pt2 and tests/parity/recorded/pt2.json, which tests/model/pt2_parity_test.cpp reads.

    python3 tests/parity/pt2_models.py FOLDER [NAME...]        needs torchvision and timm
    MILLRACE_PARITY=FOLDER build/tests/model/test_model --gtest_filter='Pt2Parity.*'

The same with networks of torchvision and timm, without what is random in training.

The weights are float32 in the file. Everything is computed in float64, so that the comparison shows the error of
millrace's float32 alone.
"""
import json
import pathlib
import re
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from networks import digest
from weights import channels_first, integers

ROOT = pathlib.Path(__file__).parent.parent


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(20, 24), nn.Tanh(), nn.Linear(24, 16, bias=False), nn.SiLU(),
                         nn.Linear(16, 5))


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.2)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding="same", bias=False)
        self.bn2 = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.2)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        return self.relu(y)


class Cnn(nn.Module):
    """A residual block with batch norms; the linear layer reads channels, height and width."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8, eps=1e-3, momentum=0.2)
        self.block = Block(8)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.drop = nn.Dropout(0)
        self.fc = nn.Linear(8 * 3 * 4, 5)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        x = torch.relu_(self.norm(self.stem(x)))
        x = self.pool(self.block(x))
        return self.fc(self.drop(torch.flatten(x, 1)))


class Squeeze(nn.Module):
    """A depthwise convolution with squeeze and excitation, and a second branch of averages."""

    def __init__(self):
        super().__init__()
        self.expand = nn.Conv2d(3, 12, 1)
        self.depthwise = nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False)
        self.norm = nn.GroupNorm(3, 12)
        self.down, self.up = nn.Conv2d(12, 4, 1), nn.Conv2d(4, 12, 1)
        self.project = nn.Conv2d(24, 10, 1)
        self.fc = nn.Linear(10, 5)

    def forward(self, x):
        x = F.hardswish(self.expand(x))
        y = F.elu(self.norm(self.depthwise(x)))
        factor = torch.sigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(y, 1)))))
        y = torch.cat([y * factor, F.avg_pool2d(x, 3, 1, 1)], 1)
        y = F.leaky_relu(self.project(y))
        return self.fc(y.mean((2, 3)))


class UNet(nn.Module):
    """A label at each pixel; both ways of upsampling."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm_a, self.norm_b = nn.BatchNorm2d(6), nn.InstanceNorm2d(8, affine=True)
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.d, self.e = nn.Conv2d(16, 6, 3, padding=1), nn.Conv2d(12, 4, 1)

    def forward(self, x):
        a = F.relu(self.norm_a(self.a(x)))
        b = F.relu(self.norm_b(self.b(F.max_pool2d(a, 2))))
        c = F.gelu(self.c(F.max_pool2d(b, 2)))
        d = F.relu(self.d(torch.cat([self.up(c), b], 1)))
        d = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        return self.e(torch.cat([d, a], dim=1))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class VitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.gamma * self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class Vit(nn.Module):
    """Patches, a class token, positions, attention with queries, keys and values of one layer, and nn.MultiheadAttention."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 24, 4, 4)
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, 24))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 13, 24))
        self.block = VitBlock(24, 3)
        self.norm = nn.LayerNorm(24)
        self.mha = nn.MultiheadAttention(24, 2, batch_first=True)
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        x = self.block(x)
        y = self.norm(x)
        x = x + self.mha(y, y, y, need_weights=False)[0]
        return self.head(x[:, 0])


class ConvNextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dw = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.layer_scale = nn.Parameter(torch.full((width, 1, 1), 0.3))

    def forward(self, x):
        y = self.norm(self.dw(x).permute(0, 2, 3, 1))
        y = self.fc2(F.gelu(self.fc1(y))).permute(0, 3, 1, 2)
        return x + self.layer_scale * y


class ConvNext(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 2, 2)
        self.blocks = nn.Sequential(ConvNextBlock(16), ConvNextBlock(16))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.stem(x)).mean([-2, -1])))


class Volume(nn.Module):
    """Three dimensions, and then one."""

    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Conv3d(2, 6, 3, stride=2, padding=1), nn.GroupNorm(2, 6)
        self.b = nn.ConvTranspose3d(6, 4, 3, 2, 1, output_padding=1)
        self.c, self.d = nn.Conv1d(4, 6, 3, padding=1), nn.Linear(6 * 8, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.a(x)))
        x = F.relu(self.b(x)) + F.interpolate(x[:, :4], scale_factor=2, mode="trilinear")
        x = F.max_pool3d(F.silu(x), 2)
        x = F.interpolate(self.c(x.flatten(3).mean(3)), scale_factor=2, mode="nearest")
        return self.d(x.flatten(1))


class Gpt(nn.Module):
    """Tokens, positions by an index, causal attention whose parts are split, and a head that shares the table."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(40, 24), nn.Embedding(16, 24)
        self.ln, self.attn, self.proj = nn.LayerNorm(24), nn.Linear(24, 72), nn.Linear(24, 24)
        self.head = nn.Linear(24, 40, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        b, t = tokens.shape
        x = self.wte(tokens) + self.wpe(torch.arange(0, t, device=tokens.device))
        q, k, v = self.attn(self.ln(x)).split(24, dim=2)
        q, k, v = (z.view(b, t, 2, 12).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, 24))
        return self.head(x)


class Random(nn.Module):
    """What is random in training: dropout and stochastic depth. Only its evaluation is compared."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.norm, self.drop = nn.BatchNorm2d(6), nn.Dropout(0.5)
        self.fc = nn.Linear(6, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.a(x)))
        y = self.b(x)
        if self.training:
            noise = torch.empty([x.shape[0], 1, 1, 1], dtype=x.dtype).bernoulli_(0.75)
            noise.div_(0.75)
            y = y * noise
        return self.fc(self.drop((x + y).mean((2, 3))))


# Network, rows, shape of a sample (channels last; one axis: tokens), outputs, learning rate.
CASES = [
    (Mlp, 6, [5, 4, 1], 5, 0.05),
    (Cnn, 6, [12, 14, 3], 5, 0.05),
    (Squeeze, 5, [8, 10, 3], 5, 0.05),
    (UNet, 3, [8, 12, 3], 4, 0.05),
    (Vit, 5, [12, 16, 3], 5, 0.02),
    (ConvNext, 4, [12, 8, 3], 5, 0.02),
    (Volume, 4, [8, 6, 4, 2], 5, 0.05),
    (Gpt, 3, [12], 40, 0.1),
    (Random, 4, [8, 6, 3], 5, 0.05),
]
# Of torchvision or timm: the shape of a sample, and what the network is made with.
ZOO = {
    "resnet18": ([64, 64, 3], {}), "resnet50": ([64, 64, 3], {}), "vgg16_bn": ([224, 224, 3], {}),
    "densenet121": ([64, 64, 3], {}), "mobilenet_v2": ([64, 64, 3], {}), "mobilenet_v3_small": ([64, 64, 3], {}),
    "efficientnet_b0": ([64, 64, 3], {}), "convnext_tiny": ([64, 64, 3], {}), "r3d_18": ([8, 32, 32, 3], {}),
    "regnet_y_400mf": ([64, 64, 3], {}), "vit_tiny_patch16_224": ([64, 64, 3], {"img_size": 64}),
    "vit_b_16": ([64, 64, 3], {"image_size": 64}), "resnet50d": ([64, 64, 3], {}),
    "mobilenetv4_conv_small": ([64, 64, 3], {}), "efficientnetv2_rw_t": ([64, 64, 3], {}),
}


def batch(name, rows, sample, outputs):
    if len(sample) == 1:
        return integers(name + " x", [rows] + sample, outputs), integers(name + " y", [rows] + sample, outputs)
    x = channels_first(integers(name + " x", [rows] + sample, 256).double() / 255)
    return x, integers(name + " y", [rows] + (sample[:-1] if name == "unet" else []), outputs)


def loss_of(logits, y):
    if logits.dim() == 3:  # tokens
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())
    return F.cross_entropy(logits, y)


def digest_of_logits(logits):
    return digest("logits", logits.movedim(1, -1) if logits.dim() == 4 else logits)


def export(network, x, path):
    """In float32, without the paths of this machine."""
    program = torch.export.export(network.float().train(), (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for node in program.graph.nodes:
        trace = node.meta.get("stack_trace")
        if trace:
            node.meta["stack_trace"] = re.sub(r'"[^"]*/(site-packages|tests)/', r'"\1/', trace)
    torch.export.save(program, path)


def losses_of(network, optimizer, x, y, steps):
    out = []
    for _ in range(steps):
        loss = loss_of(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(float(loss.detach()))
    return out


def of_zoo(name, options):
    """A network of ten classes, without dropout and stochastic depth."""
    import timm
    import torchvision

    in_torchvision = name in torchvision.models.list_models()
    network = (torchvision.models.get_model if in_torchvision else timm.create_model)(name, num_classes=10, **options)
    for module in network.modules():
        if "Dropout" in type(module).__name__ or type(module).__name__ in ("StochasticDepth", "DropPath"):
            for attribute in ("p", "drop_prob"):
                if hasattr(module, attribute):
                    setattr(module, attribute, 0.0)
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
        if isinstance(module, nn.Linear) and not module.weight.any():  # torchvision's heads
            module.reset_parameters()
    return network.train()


def record(make, rows, sample, outputs, rate, name=None, folder=ROOT / "fixtures" / "pt2", steps=10):
    name = name or make.__name__.lower()
    torch.manual_seed(1)
    with torch.random.fork_rng():
        network = make()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):  # as after some training
                module.running_mean.uniform_(-0.2, 0.2)
                module.running_var.uniform_(0.5, 1.5)
    x, y = batch(name, rows, sample, outputs)
    export(network, x.float() if x.is_floating_point() else x, folder / f"{name}.pt2")
    state = {key: value.double() if value.is_floating_point() else value.clone()
             for key, value in network.state_dict().items()}
    network.double()

    def start():
        network.load_state_dict(state)
        network.train()
        return network

    out = {"name": name, "rows": rows, "sample": sample, "outputs": outputs, "rate": rate}
    out["evaluated"] = digest_of_logits(start().eval()(x))
    if name == "random":
        return out
    logits = start()(x)
    loss = loss_of(logits, y)
    loss.backward()
    out["logits"] = digest_of_logits(logits)
    out["gradients"] = {n: digest(n, p.grad) for n, p in network.named_parameters() if p.grad is not None}
    out["losses"] = losses_of(start(), torch.optim.SGD(network.parameters(), rate), x, y, steps)
    out["adamw_rate"] = rate / 20
    out["adamw_losses"] = losses_of(start(), torch.optim.AdamW(network.parameters(), rate / 20, weight_decay=0), x, y,
                                    steps)
    return out


def main():
    if len(sys.argv) > 1:
        folder = pathlib.Path(sys.argv[1])
        cases = [record(lambda n=name: of_zoo(n, ZOO[n][1]), 3, ZOO[name][0], 10, 0.01, name, folder, steps=2)
                 for name in sys.argv[2:] or ZOO]
        (folder / "pt2.json").write_text(json.dumps({"pytorch": torch.__version__, "cases": cases}))
        return
    torch.set_num_threads(1)  # tensors are small
    cases = ",\n  ".join(json.dumps(record(*case)) for case in CASES)
    path = ROOT / "parity" / "recorded" / "pt2.json"
    path.write_text(f'{{"pytorch": "{torch.__version__}", "cases": [\n  {cases}\n]}}\n')


if __name__ == "__main__":
    main()
