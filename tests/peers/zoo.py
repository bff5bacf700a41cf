"""Transformers, U-Net and CosmoFlow in PyTorch, as their users write them, with the names of millrace's checkpoints."""
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, causal, names):
        super().__init__()
        self.heads, self.causal, self.names = heads, causal, names
        self.add_module(names[0], nn.Linear(width, 3 * width))
        self.add_module(names[1], nn.Linear(width, width))

    def forward(self, x):
        n, s, width = x.shape
        q, k, v = getattr(self, self.names[0])(x).view(n, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return getattr(self, self.names[1])(y.transpose(1, 2).reshape(n, s, width))


class MLP(nn.Module):
    def __init__(self, width, approximate, names):
        super().__init__()
        self.approximate, self.names = approximate, names
        self.add_module(names[0], nn.Linear(width, 4 * width))
        self.add_module(names[1], nn.Linear(4 * width, width))

    def forward(self, x):
        return getattr(self, self.names[1])(F.gelu(getattr(self, self.names[0])(x), approximate=self.approximate))


class GPT2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads, True, ("c_attn", "c_proj"))
        self.mlp = MLP(width, "tanh", ("c_fc", "c_proj"))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, vocabulary=256, positions=128, blocks=4, width=128, heads=4):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.h = nn.Sequential(*[GPT2Block(width, heads) for _ in range(blocks)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, x):
        x = self.h(self.wte(x) + self.wpe.weight)
        return F.linear(self.ln_f(x), self.wte.weight)


class ViTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.attn = Attention(width, heads, False, ("qkv", "proj"))
        self.mlp = MLP(width, "none", ("fc1", "fc2"))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, image=224, patch=16, classes=10, blocks=12, width=192, heads=3):
        super().__init__()
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, patch, patch)})
        self.pos_embed = nn.ParameterDict({"class_token": torch.zeros(1, 1, width),
                                           "weight": torch.zeros((image // patch) ** 2 + 1, width)})
        self.blocks = nn.Sequential(*[ViTBlock(width, heads) for _ in range(blocks)])
        self.norm = nn.LayerNorm(width, 1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch_embed["proj"](x).flatten(2).transpose(1, 2)
        x = torch.cat([self.pos_embed["class_token"].expand(len(x), -1, -1), x], 1) + self.pos_embed["weight"]
        return self.head(self.norm(self.blocks(x))[:, 0])


class DoubleConv(nn.Module):
    def __init__(self, inside, middle, width):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(inside, middle, 3, padding=1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(inplace=True),
            nn.Conv2d(middle, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, inside, width):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(inside, width, width))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, inside, width):
        super().__init__()
        self.conv = DoubleConv(inside, inside // 2, width)

    def forward(self, x, skipped):
        return self.conv(torch.cat([skipped, F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)], 1))


class UNet(nn.Module):
    """github.com/milesial/Pytorch-UNet, with align_corners=False."""

    def __init__(self, width=16, classes=4):
        super().__init__()
        self.inc = DoubleConv(3, width, width)
        self.down1, self.down2 = Down(width, 2 * width), Down(2 * width, 4 * width)
        self.down3, self.down4 = Down(4 * width, 8 * width), Down(8 * width, 8 * width)
        self.up1, self.up2 = Up(16 * width, 4 * width), Up(8 * width, 2 * width)
        self.up3, self.up4 = Up(4 * width, width), Up(2 * width, width)
        self.outc = nn.ModuleDict({"conv": nn.Conv2d(width, classes, 1)})

    def forward(self, x):
        a = self.inc(x)
        b = self.down1(a)
        c = self.down2(b)
        d = self.down3(c)
        y = self.up1(self.down4(d), d)
        return self.outc["conv"](self.up4(self.up3(self.up2(y, c), b), a))


class CosmoFlow(nn.Module):
    """MLPerf HPC's from 1.0 on, with leaky ReLUs of slope 0.01 and linear results."""

    def __init__(self, side=64, width=16, targets=4):
        super().__init__()
        inside = 4
        for i in range(5):
            self.add_module(f"conv{i + 1}", nn.Conv3d(inside, width << i, 3, padding=1))
            inside = width << i
        # millrace's weights of the first linear layer follow its layout, channels last
        self.linear1, self.linear2, self.linear3 = nn.Linear(inside * (side // 32) ** 3, 128), nn.Linear(128, 64), nn.Linear(64, targets)

    def forward(self, x):
        for i in range(5):
            x = F.max_pool3d(F.leaky_relu(getattr(self, f"conv{i + 1}")(x)), 2)
        x = x.movedim(1, -1).flatten(1)
        return self.linear3(F.leaky_relu(self.linear2(F.leaky_relu(self.linear1(x)))))
