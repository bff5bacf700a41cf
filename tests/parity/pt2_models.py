"""Small networks of PyTorch, written by hand. pt2_record.py exports them to tests/fixtures/pt2, and records what PyTorch
computes with them.

The archives hold file names and lines of this file.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


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
