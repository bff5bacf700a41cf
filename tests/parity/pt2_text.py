"""Small networks for text, with what those of transformers do: masks that are indexed by the rows, rows of padding, rotary
positions, positions that depend on the tokens. pt2_record.py exports them."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def heads_of(x, heads):
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def visible(n, t, causal):
    """(n, 1, t, t), as masks of transformers are made. Sequences may be packed in a row; these positions show that none is."""
    positions = torch.arange(t)[None].expand(n, -1)
    packed = torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1).ne(1).cumsum(-1)
    row = torch.arange(n)[:, None, None, None]
    query, key = torch.arange(t)[None, None, :, None], torch.arange(t)[None, None, None, :]
    same = packed[row, query] == packed[row, key]
    return same & (key <= query) if causal else same.expand(n, -1, t, t)


class Encoder(nn.Module):
    """Rows of padding, types of tokens that are constants, masks that hide nothing, and a first token that all read."""

    def __init__(self, width=16, length=14):
        super().__init__()
        self.words, self.types = nn.Embedding(30, width, padding_idx=0), nn.Embedding(2, width)
        self.places = nn.Embedding(length, width)
        self.norm, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.pool, self.head = nn.Linear(width, width), nn.Linear(width, 30)
        self.head.weight = self.words.weight
        self.register_buffer("position_ids", torch.arange(length)[None], persistent=False)
        self.register_buffer("type_ids", torch.zeros(1, length, dtype=torch.long), persistent=False)

    def forward(self, tokens):
        n, t = tokens.shape
        places = self.position_ids[:, :t]
        types = torch.gather(self.type_ids, 1, places).expand(n, t)
        x = self.norm(self.words(tokens) + self.types(types) + self.places(places))
        q, k, v = (heads_of(part(x), 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible(n, t, False), scale=8 ** -0.5)
        x = self.norm2(x + self.o(y.transpose(1, 2).reshape(n, t, -1)))
        return self.head(x + torch.tanh(self.pool(x[:, 0]))[:, None])


class RmsNorm(nn.Module):
    def __init__(self, width, shift=0.0):
        super().__init__()
        self.weight, self.shift = nn.Parameter(1 - shift + 0.1 * torch.randn(width)), shift

    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return x * (self.weight + self.shift) if self.shift else self.weight * x


def rotated(x, cosine, sine):
    half = x.shape[-1] // 2
    return x * cosine + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sine


def repeated(x, times):
    n, heads, t, size = x.shape
    return x[:, :, None].expand(n, heads, times, t, size).reshape(n, heads * times, t, size)


class Decoder(nn.Module):
    """Rotary positions, also with frequencies that no base has; grouped keys; RMS norms; a gate."""

    def __init__(self, width=24, size=6):
        super().__init__()
        self.words, self.norm, self.norm2 = nn.Embedding(30, width), RmsNorm(width), RmsNorm(width, 1.0)
        self.q, self.k, self.v = (nn.Linear(width, of * size, bias=False) for of in (4, 2, 2))
        self.o = nn.Linear(4 * size, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, 32), nn.Linear(width, 32), nn.Linear(32, width)
        self.head = nn.Linear(width, 30, bias=False)
        frequencies = 100.0 ** (-torch.arange(0, size, 2) / size)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.register_buffer("others", frequencies * torch.tensor([1.0, 0.4, 0.9]), persistent=False)

    def attend(self, x, frequencies):
        n, t, _ = x.shape
        angles = torch.arange(t)[None, :, None].float() * frequencies[None, None]
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        q, k = (rotated(heads_of(y, heads), angles.cos(), angles.sin()) for y, heads in ((self.q(x), 4), (self.k(x), 2)))
        k, v = repeated(k, 2), repeated(heads_of(self.v(x), 2), 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible(n, t, True))
        return self.o(y.transpose(1, 2).reshape(n, t, -1))

    def forward(self, tokens):
        x = self.words(tokens)
        x = x + self.attend(self.norm(x), self.frequencies)
        x = x + self.attend(self.norm(x), self.others)
        y = self.norm2(x)
        return self.head(x + self.down(F.silu(self.gate(y)) * self.up(y)))


class Counted(nn.Module):
    """Positions that do not count the padding, and the last token before it."""

    def __init__(self, width=16, padding=3):
        super().__init__()
        self.padding = padding
        self.words = nn.Embedding(30, width, padding_idx=padding)
        self.places = nn.Embedding(16, width, padding_idx=padding)
        self.mix, self.head, self.other = nn.Linear(10, 10), nn.Linear(width, 30), nn.Linear(width, 30)

    def forward(self, tokens):
        n, t = tokens.shape
        mask = tokens.ne(self.padding).int()
        places = ((torch.cumsum(mask, dim=1).type_as(mask) + 0) * mask).long() + self.padding
        x = self.words(tokens) + self.places(places)
        x = x + torch.tanh(self.mix(x.transpose(1, 2))).transpose(1, 2)
        last = (torch.arange(t, dtype=torch.int32) * tokens.ne(self.padding).to(torch.int32)).argmax(-1)
        return self.head(x) + self.other(x)[torch.arange(n), last][:, None]


class Relative(nn.Module):
    """A learned bias of relative positions, as T5 has it, scores without a factor, and GELU that is written out."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.words, self.bias = nn.Embedding(30, width), nn.Embedding(8, heads)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down, self.head = nn.Linear(width, 24), nn.Linear(24, width), nn.Linear(width, 30)

    def relative_bias(self, n, t):
        distance = torch.arange(t)[None, :] - torch.arange(t)[:, None]
        bucket = (distance > 0).long() * 4
        far = distance.abs()
        bucket += torch.where(far < 2, far, torch.min(2 + (far.float() / 2).log().long(), torch.full_like(far, 3)))
        bias = self.bias(bucket).permute(2, 0, 1)[None]
        return torch.where(visible(n, t, False), bias, torch.finfo(bias.dtype).min).contiguous()

    def forward(self, tokens):
        n, t = tokens.shape
        x = self.words(tokens)
        bias = self.relative_bias(n, t)
        for _ in range(2):
            q, k, v = (heads_of(part(x), 2) for part in (self.q, self.k, self.v))
            y = F.scaled_dot_product_attention(0.3 * q, k, v, attn_mask=bias, scale=1.0)
            x = x + self.o(y.transpose(1, 2).reshape(n, t, -1))
        y = self.up(x)
        y = 0.5 * y * (1.0 + torch.tanh((2 / torch.pi) ** 0.5 * (y + 0.044715 * torch.pow(y, 3.0))))
        y = self.down(y)
        q, k, v = (heads_of(part(y), 2) for part in (self.q, self.k, self.v))
        return self.head(x + F.scaled_dot_product_attention(0.3 * q, k, v, scale=1.0).transpose(1, 2).reshape(n, t, -1))


# As CASES of pt2_models.py.
CASES = [
    (Encoder, 4, [10], 30, 0.1),
    (Decoder, 4, [10], 30, 0.1),
    (Counted, 6, [10], 30, 0.1),
    (Relative, 4, [10], 30, 0.1),
]
