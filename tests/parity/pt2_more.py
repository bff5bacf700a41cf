"""Small networks that need copies, constants and attention that is written out. pt2_record.py exports them."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Shuffle(nn.Module):
    """Channels that are divided, joined and shuffled, and max pools whose last window reaches beyond the image."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12)
        self.branch, self.depthwise = nn.Conv2d(6, 6, 1), nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, ceil_mode=True)
        for _ in range(2):
            a, b = x.chunk(2, dim=1)
            x = torch.cat((a, self.depthwise(F.relu(self.branch(b)))), dim=1)
            n, c, h, w = x.shape
            x = x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
        return self.fc(F.max_pool2d(x, 2, 2, ceil_mode=True).mean((2, 3)))


class Mixer(nn.Module):
    """Linear layers over positions; arithmetic with numbers; elements that are rolled, reversed and padded."""

    def __init__(self):
        super().__init__()
        self.patch, self.norm, self.norm2 = nn.Conv2d(3, 10, 4, 4), nn.LayerNorm(10), nn.LayerNorm(10)
        self.mix, self.back = nn.Linear(6, 9), nn.Linear(9, 6)
        self.fc, self.fc2, self.head = nn.Linear(10, 14), nn.Linear(14, 10), nn.Linear(10, 5)

    def forward(self, x):
        x = self.patch(2 * x - 1)
        x = torch.roll(x, (1, -1), (2, 3)) + 0.5 * x.flip(3) - F.pad(x, (1, 0, 0, 1))[:, :, 1:, :3]
        x = x.flatten(2).transpose(1, 2)
        x = x + self.back(F.gelu(self.mix(self.norm(x).transpose(1, 2)))).transpose(1, 2)
        y = self.fc(self.norm2(x))
        x = x + self.fc2(y * torch.sigmoid(1.702 * y)) / 3
        return self.head(1 - x.mean(1) ** 2)


def windows(x, size):
    n, h, w, c = x.shape
    x = x.view(n, h // size, size, w // size, size, c).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(n * (h // size) * (w // size), size * size, c)


class Swin(nn.Module):
    """Attention within shifted windows, as torchvision writes it: a bias that is looked up by constant indices, and a mask."""

    def __init__(self, width=12, heads=2, size=2):
        super().__init__()
        self.width, self.heads, self.size = width, heads, size
        self.patch, self.norm = nn.Conv2d(3, width, 2, 2), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(0.5 * torch.randn((2 * size - 1) ** 2, heads))
        grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).flatten(1)
        relative = (grid[:, :, None] - grid[:, None, :]).permute(1, 2, 0) + size - 1
        self.register_buffer("index", (relative[..., 0] * (2 * size - 1) + relative[..., 1]).flatten())
        self.merge, self.head = nn.Linear(4 * width, 2 * width, bias=False), nn.Linear(2 * width, 5)

    def attend(self, x, shift):
        n, h, w, c = x.shape
        size, heads = self.size, self.heads
        x = F.pad(self.norm(x), (0, 0, 0, -w % size, 0, -h % size))
        _, ph, pw, _ = x.shape
        x = torch.roll(x, (-shift, -shift), (1, 2))
        count = (ph // size) * (pw // size)
        y = self.qkv(windows(x, size))
        q, k, v = y.reshape(y.size(0), y.size(1), 3, heads, c // heads).permute(2, 0, 3, 1, 4)
        scores = (q * (c // heads) ** -0.5).matmul(k.transpose(-2, -1))
        bias = self.table[self.index].view(size * size, size * size, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        scores = scores + bias
        if shift > 0:
            mask = x.new_zeros((ph, pw))
            number = 0
            for rows in ((0, -size), (-size, -shift), (-shift, None)):
                for columns in ((0, -size), (-size, -shift), (-shift, None)):
                    mask[rows[0]:rows[1], columns[0]:columns[1]] = number
                    number += 1
            mask = mask.view(ph // size, size, pw // size, size).permute(0, 2, 1, 3).reshape(count, size * size)
            mask = mask.unsqueeze(1) - mask.unsqueeze(2)
            mask = mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)
            scores = scores.view(n, count, heads, size * size, size * size) + mask.unsqueeze(1).unsqueeze(0)
            scores = scores.view(-1, heads, size * size, size * size)
        y = F.dropout(F.softmax(scores, dim=-1), 0.0, self.training).matmul(v).transpose(1, 2)
        y = self.proj(y.reshape(y.size(0), size * size, c))
        y = y.view(n, ph // size, pw // size, size, size, c).permute(0, 1, 3, 2, 4, 5).reshape(n, ph, pw, c)
        return torch.roll(y, (shift, shift), (1, 2))[:, :h, :w, :]

    def forward(self, x):
        x = self.patch(x).permute(0, 2, 3, 1)
        x = x + self.attend(x, 0)
        x = x + self.attend(x, 1)
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.head(self.merge(x).mean((1, 2)))


class Written(nn.Module):
    """A small transformer for text with masks: attention that is written out, and attention with a mask."""

    def __init__(self, width=16, heads=2, length=10):
        super().__init__()
        self.heads = heads
        self.wte, self.wpe = nn.Embedding(30, width), nn.Embedding(length, width)
        self.qkv, self.proj, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 30)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, heads + 1))

    def split(self, x):
        n, t, c = x.shape
        return (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm(x)).split(c, dim=2))

    def forward(self, tokens):
        n, t = tokens.shape
        x = self.wte(tokens) + self.wpe(torch.arange(t) // 2)
        q, k, v = self.split(x)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / k.size(-1) ** 0.5)
        distance = torch.arange(t)[None, :] - torch.arange(t)[:, None]
        scores = scores + distance * self.slopes[:, None, None]
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        x = x + self.proj((F.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(n, t, -1))
        q, k, v = self.split(x)
        near = (distance <= 0) & (distance > -4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=near, scale=0.3)
        return self.head(x + self.proj(y.transpose(1, 2).reshape(n, t, -1)))


class Deit(nn.Module):
    """Positions before the class token and another token; constants of the network; products of two values."""

    def __init__(self):
        super().__init__()
        self.patch, self.norm = nn.Conv2d(3, 16, 4, 4), nn.LayerNorm(16)
        self.cls_token, self.other = (nn.Parameter(0.2 * torch.randn(1, 1, 16)) for _ in range(2))
        self.pos_embed = nn.Parameter(0.2 * torch.randn(1, 6, 16))
        self.shift = nn.Parameter(0.2 * torch.randn(16))
        self.gate, self.value, self.mix, self.head = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16), nn.Linear(16, 5)
        self.mha = nn.MultiheadAttention(16, 2, batch_first=True)
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1))
        self.register_buffer("std", torch.tensor([0.2, 0.3, 0.25]).view(3, 1, 1))

    def forward(self, x):
        x = self.patch((x - self.mean) / self.std).flatten(2).transpose(1, 2)
        x = x + self.pos_embed
        n = x.shape[0]
        x = torch.cat((self.cls_token.expand(n, -1, -1), self.other.expand(n, -1, -1), x), dim=1)
        y = self.norm(x) + self.shift
        x = x + self.mha(y, y, y, need_weights=False)[0]
        x = x + self.mix(F.silu(self.gate(x)) * self.value(x))
        weights = torch.linspace(0.5, 1.5, 8).view(1, 8, 1)
        return self.head((x * weights).mean(1) + x[:, 0] - x[:, 1])


class Response(nn.Module):
    """Global response norm, as timm writes it; sums, roots and quotients of values."""

    def __init__(self):
        super().__init__()
        self.stem, self.fc1, self.fc2, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 5)
        self.weight, self.bias = (nn.Parameter(0.5 * torch.randn(16)) for _ in range(2))

    def forward(self, x):
        x = self.stem(x).permute(0, 2, 3, 1)
        y = F.gelu(self.fc1(x))
        norm = y.norm(p=2, dim=(1, 2), keepdim=True)
        norm = norm / (norm.mean(dim=-1, keepdim=True) + 1e-6)
        y = y + torch.addcmul(self.bias.view(1, 1, 1, -1), self.weight.view(1, 1, 1, -1), y * norm)
        x = x + self.fc2(y)
        x = x / torch.sqrt((x * x).sum(-1, keepdim=True) + 0.1) + (1 + x ** 2) ** -0.75
        return self.head(F.normalize(x.mean((1, 2)).clamp(max=0.9), dim=1))


class Channels(nn.Module):
    """Dropout of whole channels, of which only the evaluation is compared."""

    def __init__(self):
        super().__init__()
        self.a, self.drop, self.fc = nn.Conv2d(3, 6, 3, padding=1), nn.Dropout2d(0.5), nn.Linear(6, 5)

    def forward(self, x):
        return self.fc(self.drop(F.relu(self.a(x))).mean((2, 3)))


class Slopes(nn.Module):
    """Learned and constant slopes; a norm without weights; pools and interpolation whose windows overlap or differ."""

    def __init__(self):
        super().__init__()
        self.stem, self.conv, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(12, 8, 3, padding=1), nn.Linear(8, 5)
        self.each, self.all = nn.PReLU(8, init=0.1), nn.PReLU(init=0.3)

    def forward(self, x):
        x = torch.cat([self.each(self.stem(x)), x.repeat(1, 2, 1, 1)[:, :4]], 1)
        y = F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
        y = F.interpolate(y, size=(7, 9), mode="bilinear", align_corners=True)
        x = F.adaptive_avg_pool2d(x, (7, 9)) + F.leaky_relu(y, 0.1) + F.interpolate(y[:, :, :4], size=(7, 9))
        x = self.all(self.conv(F.interpolate(x, scale_factor=1.5, mode="bilinear")))
        x = F.layer_norm(x.permute(0, 2, 3, 1), [8]).mean((1, 2))
        return self.fc(F.hardtanh(x + torch.stack([x, x.flip(1)], 1).mean(1), -0.5, 0.75))


class Einsum(nn.Module):
    """Attention as einsum, a part of it without autocast, and a convolution of constants that are stacked and repeated."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.patch, self.place = nn.Conv2d(3, width, 2, 2), nn.Conv2d(4, width, 1)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.table, self.head = nn.Parameter(0.2 * torch.randn(width, 6)), nn.Linear(6, 5)

    def places(self, n, h, w):
        rows, columns = torch.arange(h).view(1, h, 1).repeat(1, 1, w), torch.arange(w).view(1, 1, w).repeat(1, h, 1)
        angles = torch.stack([rows, columns], 1).to(self.table.dtype) / 3.0
        return torch.cat([angles.sin(), angles.cos()], 1).repeat(n, 1, 1, 1)

    def forward(self, x):
        x = self.patch(x)
        n, c, h, w = x.shape
        x = (x + self.place(self.places(n, h, w))).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(x).view(n, h * w, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        with torch.autocast(device_type="cpu", enabled=False):
            scores = torch.einsum("blxd,blyd->blxy", q, k) * (c // self.heads) ** -0.5
        y = torch.einsum("bhxy, bhyd -> bxhd", scores.softmax(dim=-1), v).reshape(n, h * w, c)
        return self.head(torch.einsum("bnc,ck->bkn", x + self.proj(y), self.table).mean(2))


class Depth(nn.Module):
    """Stochastic depth as transformers and MONAI write it, of which only the evaluation is compared."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 1), nn.Conv2d(6, 6, 1)
        self.fc = nn.Linear(6, 5)

    def drop(self, x, keep):
        if not self.training:
            return x
        noise = keep + torch.rand((x.shape[0], 1, 1, 1), dtype=x.dtype)
        noise.floor_()
        return x.div(keep) * noise

    def forward(self, x):
        x = F.relu(self.a(x))
        x = x + self.drop(self.b(x), 0.75)
        return self.fc((x + self.drop(self.c(x), 0.5)).mean((2, 3)))


class Refused(nn.Module):
    """Has an operation that millrace does not know."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12 * 14 * 3, 5)

    def forward(self, x):
        return self.fc(torch.erf(x.flatten(1)))


# As CASES of pt2_models.py.
class Folded(nn.Module):
    """A product that is added to a value, and constants that are divided into parts, selected and inverted."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.fc = nn.Linear(30, 8), nn.Linear(30, 8), nn.Linear(30, 3), nn.Linear(24, 5)

    def forward(self, x):
        x = x.flatten(2)
        a, b = self.a(x), self.b(x)
        y = torch.baddbmm(self.c(x), a, b.transpose(1, 2), beta=0.5, alpha=0.25) @ a
        wave = torch.arange(24.0).reshape(1, 3, 8)
        sine, cosine = torch.split(torch.cat([wave.sin(), wave.cos()], -1), 8, -1)
        picked = torch.index_select(wave, 1, torch.tensor([2, 0, 1]))
        return self.fc((y * sine + b * cosine + (picked + 1).reciprocal()).flatten(1))


CASES = [
    (Shuffle, 5, [12, 11, 3], 5, 0.05),
    (Mixer, 5, [8, 12, 3], 5, 0.05),
    (Swin, 4, [12, 8, 3], 5, 0.02),
    (Written, 4, [10], 30, 0.1),
    (Deit, 5, [8, 12, 3], 5, 0.02),
    (Response, 5, [8, 12, 3], 5, 0.05),
    (Channels, 4, [8, 6, 3], 5, 0.05),
    (Slopes, 4, [8, 10, 3], 5, 0.05),
    (Einsum, 4, [8, 6, 3], 5, 0.05),
    (Depth, 4, [8, 6, 3], 5, 0.05),
    (Folded, 4, [6, 5, 3], 5, 0.05),
]

