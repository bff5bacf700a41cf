"""Networks of millrace's zoo in PyTorch, with weights and batches from a formula that the tests share.

Everything is computed in float64, so that the comparison shows the error of millrace's float32 alone.
"""
import math
import zlib

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
MASK = (1 << 64) - 1


def signed(x):
    """A number of 64 bits as PyTorch's int64 holds it."""
    x &= MASK
    return x - (1 << 64) if x >> 63 else x


def shifted(x, bits):
    """x >> bits of unsigned numbers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mixed(name, count):
    """SplitMix64 (Steele et al. 2014) of the index, in a sequence for each name."""
    z = torch.arange(1, count + 1) * signed(0x9E3779B97F4A7C15) + signed(zlib.crc32(name.encode()) << 32)
    z = (z ^ shifted(z, 30)) * signed(0xBF58476D1CE4E5B9)
    z = (z ^ shifted(z, 27)) * signed(0x94D049BB133111EB)
    return z ^ shifted(z, 31)


def uniform(name, count):
    """Numbers in [-1, 1)."""
    return shifted(mixed(name, count), 40).double() / (1 << 23) - 1


def integers(name, shape, below):
    return (shifted(mixed(name, math.prod(shape)), 33) % below).reshape(shape)


class Weights:
    """The parameters of a network by name, made when they are first asked for. Their layout is millrace's: outputs,
    spatial extents, inputs."""

    def __init__(self):
        self.leaves = {}

    def __call__(self, name, *shape):
        if name not in self.leaves:
            values = uniform(name, math.prod(shape))
            if len(shape) > 1:
                values = values * (math.prod(shape) / shape[0]) ** -0.5
            else:
                values = 0.1 * values + (1 if name.endswith(".weight") else 0)
            self.leaves[name] = values.float().double().reshape(shape).requires_grad_()
        return self.leaves[name]

    def linear(self, x, name, outputs, bias=True):
        return F.linear(x, self(name + ".weight", outputs, x.shape[-1]), self(name + ".bias", outputs) if bias else None)

    def conv(self, x, name, outputs, kernel, stride=1, padding=0, bias=False, groups=1):
        w = self(name + ".weight", outputs, kernel, kernel, x.shape[1] // groups).permute(0, 3, 1, 2)
        return F.conv2d(x, w, self(name + ".bias", outputs) if bias else None, stride, padding, groups=groups)

    def conv3d(self, x, name, outputs, kernel, bias=False):
        w = self(name + ".weight", outputs, kernel, kernel, kernel, x.shape[1]).permute(0, 4, 1, 2, 3)
        return F.conv3d(x, w, self(name + ".bias", outputs) if bias else None)

    def conv_transpose(self, x, name, outputs, kernel, stride, padding=0, output_padding=0, bias=False, groups=1):
        w = self(name + ".weight", x.shape[1], kernel, kernel, outputs // groups).permute(0, 3, 1, 2)
        b = self(name + ".bias", outputs) if bias else None
        return F.conv_transpose2d(x, w, b, stride, padding, output_padding, groups)

    def group_norm(self, x, name, groups):
        n = x.shape[1]
        return F.group_norm(x, groups, self(name + ".weight", n), self(name + ".bias", n))

    def layer_norm(self, x, name, epsilon=1e-5):
        n = x.shape[-1]
        return F.layer_norm(x, (n,), self(name + ".weight", n), self(name + ".bias", n), epsilon)

    def batch_norm(self, x, name):
        n = x.shape[1]
        return F.batch_norm(x, None, None, self(name + ".weight", n), self(name + ".bias", n), training=True)


def split_heads(qkv, heads, key_heads):
    n, s, width = qkv.shape
    size = width // (heads + 2 * key_heads)
    parts = qkv.reshape(n, s, heads + 2 * key_heads, size).transpose(1, 2)
    return parts.split([heads, key_heads, key_heads], 1)


def rotated(x, base):
    """As Hugging Face's Llama: halves of a head form pairs."""
    s, size = x.shape[2:]
    angle = torch.outer(torch.arange(s).double(), base ** (-torch.arange(0, size, 2).double() / size))
    cosine, sine = torch.cat([angle, angle], 1).cos(), torch.cat([angle, angle], 1).sin()
    a, b = x.chunk(2, -1)
    return x * cosine + torch.cat([-b, a], -1) * sine


def attended(q, k, v, causal):
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=k.shape[1] != q.shape[1])
    return out.transpose(1, 2).flatten(2)


def gpt2(w, x, outputs, blocks=4, width=128, heads=4):
    table = w("wte.weight", outputs, width)
    x = table[x] + w("wpe.weight", x.shape[1], width)
    for i in range(blocks):
        at = f"h.{i}."
        y = w.linear(w.layer_norm(x, at + "ln_1"), at + "attn.c_attn", 3 * width)
        x = x + w.linear(attended(*split_heads(y, heads, heads), True), at + "attn.c_proj", width)
        y = F.gelu(w.linear(w.layer_norm(x, at + "ln_2"), at + "mlp.c_fc", 4 * width), approximate="tanh")
        x = x + w.linear(y, at + "mlp.c_proj", width)
    return w.layer_norm(x, "ln_f") @ table.T


def llama(w, x, outputs, blocks=4, width=128, heads=4, key_heads=2, feed_forward=352):
    def norm(x, name):
        return F.rms_norm(x, (width,), w(name + ".weight", width), 1e-5)

    x = w("embed_tokens.weight", outputs, width)[x]
    for i in range(blocks):
        at = f"layers.{i}."
        y = w.linear(norm(x, at + "input_layernorm"), at + "self_attn.qkv_proj",
                     (heads + 2 * key_heads) * width // heads, False)
        q, k, v = split_heads(y, heads, key_heads)
        x = x + w.linear(attended(rotated(q, 10000), rotated(k, 10000), v, True), at + "self_attn.o_proj", width, False)
        gate, up = w.linear(norm(x, at + "post_attention_layernorm"), at + "mlp.gate_up_proj", 2 * feed_forward,
                            False).chunk(2, -1)
        x = x + w.linear(F.silu(gate) * up, at + "mlp.down_proj", width, False)
    return w.linear(norm(x, "norm"), "lm_head", outputs, False)


def vit(w, x, outputs, blocks=12, width=192, heads=3, patch=16):
    x = w.conv(x, "patch_embed.proj", width, patch, patch, bias=True).flatten(2).transpose(1, 2)
    token = w("pos_embed.class_token", width).expand(len(x), 1, width)
    x = torch.cat([token, x], 1)
    x = x + w("pos_embed.weight", x.shape[1], width)
    for i in range(blocks):
        at = f"blocks.{i}."
        y = w.linear(w.layer_norm(x, at + "norm1", 1e-6), at + "attn.qkv", 3 * width)
        x = x + w.linear(attended(*split_heads(y, heads, heads), False), at + "attn.proj", width)
        y = F.gelu(w.linear(w.layer_norm(x, at + "norm2", 1e-6), at + "mlp.fc1", 4 * width))
        x = x + w.linear(y, at + "mlp.fc2", width)
    return w.linear(w.layer_norm(x, "norm", 1e-6)[:, 0], "head", outputs)


def convnext(w, x, outputs, width=96, patch=4):
    def last(x):
        return x.permute(0, 2, 3, 1)

    def first(x):
        return x.permute(0, 3, 1, 2)

    x = first(w.layer_norm(last(w.conv(x, "stem.0", width, patch, patch, bias=True)), "stem.1", 1e-6))
    for stage, blocks in enumerate((3, 3, 9, 3)):
        if stage > 0:
            width *= 2
            x = first(w.layer_norm(last(x), f"stages.{stage}.downsample.0", 1e-6))
            x = w.conv(x, f"stages.{stage}.downsample.1", width, 2, 2, bias=True)
        for block in range(blocks):
            at = f"stages.{stage}.blocks.{block}."
            y = last(w.conv(x, at + "conv_dw", width, 7, padding=3, bias=True, groups=width))
            y = F.gelu(w.linear(w.layer_norm(y, at + "norm", 1e-6), at + "mlp.fc1", 4 * width))
            x = x + first(w.linear(y, at + "mlp.fc2", width) * w(at + "gamma.weight", width))
    return w.linear(w.layer_norm(x.mean((2, 3)), "head.norm", 1e-6), "head.fc", outputs)


def layers(w, x, outputs):
    """A small U-Net: see `layers` in the recorded file."""
    a = F.silu(w.batch_norm(w.conv(x, "a", 8, 3, padding=1), "an"))
    y = F.max_pool2d(a, 2)
    y = F.leaky_relu(w.batch_norm(w.conv(y, "b", 16, 3, padding=1), "bn"))
    y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
    y = torch.cat([y, a], 1)
    y = F.hardswish(w.conv(y, "c", 12, 3, padding=1, bias=True))
    y = F.interpolate(F.elu(y), scale_factor=2, mode="nearest")[:, 2:9]
    return w.linear(y.mean((2, 3)), "d", outputs)


def volumes(w, x, outputs):
    """Transposed convolutions, norms of groups, squeeze and excitation, channels as an axis: see `layers`."""
    y = F.relu(w.group_norm(w.conv(x, "a", 8, 3, 2, 1), "an", 2))
    y = F.relu(w.group_norm(w.conv_transpose(y, "b", 6, 3, 2, 1, 1), "bn", 6))
    factors = torch.sigmoid(w.linear(F.relu(w.linear(y.mean((2, 3)), "se.fc1", 3)), "se.fc2", 6))
    y = (y * factors[:, :, None, None]).permute(0, 2, 3, 1)[:, None]
    y = F.relu(w.conv3d(y, "c", 3, 3, bias=True)).permute(0, 2, 3, 4, 1).flatten(3).permute(0, 3, 1, 2)
    y = F.gelu(w.conv_transpose(y, "d", 4, 2, 2, bias=True, groups=2))
    return w.linear(y.mean((2, 3)), "e", outputs)


LAYERS = {layers: [
          "conv 8 3 pad=same as=a", "batchnorm as=an", "silu as=s", "maxpool 2", "conv 16 3 pad=same as=b",
          "batchnorm as=bn", "leaky_relu", "upsample 2 mode=linear", "concat s", "conv 12 3 pad=same bias=on as=c",
          "hardswish", "elu", "upsample 2", "slice 2 7", "globalpool", "linear outputs as=d"],
          volumes: [
          "conv 8 3 stride=2 pad=1 as=a", "groupnorm 2 as=an", "relu",
          "convt 6 3 stride=2 pad=1 output_pad=1 as=b", "instancenorm as=bn", "relu", "se 2 as=se", "channels_to_axis", "conv 3 3 bias=on as=c", "relu", "axis_to_channels",
          "convt 4 2 stride=2 groups=2 bias=on as=d", "gelu", "globalpool", "linear outputs as=e"]}
# Network, its sizes, rows, shape of a sample (tokens: one axis), outputs, learning rate.
CASES = [
    (gpt2, {"blocks": 2, "width": 64, "heads": 2}, 3, [24], 96, 0.2),
    (llama, {"blocks": 2, "width": 64, "heads": 4, "key_heads": 2, "feed_forward": 96}, 3, [24], 96, 0.2),
    (vit, {"blocks": 3, "width": 48, "heads": 3, "patch": 4}, 5, [16, 16, 3], 10, 0.005),
    (convnext, {"width": 8}, 4, [32, 32, 3], 10, 0.005),
    (layers, {}, 6, [10, 12, 3], 10, 0.05),
    (volumes, {}, 6, [10, 12, 3], 10, 0.05),
]


SLOWER = {gpt2: 50, llama: 50, vit: 5, convnext: 5}


def batch(name, rows, sample, outputs):
    if len(sample) == 1:
        return integers(name + " x", [rows] + sample, outputs), integers(name + " y", [rows] + sample, outputs)
    x = integers(name + " x", [rows] + sample, 256).double() / 255
    return x.permute(0, 3, 1, 2), integers(name + " y", [rows], outputs)


def digest(name, values):
    """What a test compares: the norm, and the product with a vector of the formula."""
    values = values.detach().reshape(-1)
    return [float(values.norm()), float(values @ uniform(name + " digest", len(values)))]


def trained(network, name, sizes, rows, sample, outputs, rate, steps):
    """For each step of SGD: the weights before it, the logits, the loss and the gradients."""
    w = Weights()
    x, y = batch(name, rows, sample, outputs)
    for _ in range(steps):
        logits = network(w, x, outputs, **sizes)
        loss = F.cross_entropy(logits.reshape(-1, outputs), y.reshape(-1))
        gradients = torch.autograd.grad(loss, list(w.leaves.values()))
        yield w, logits, float(loss.detach()), gradients
        with torch.no_grad():
            for leaf, gradient in zip(w.leaves.values(), gradients):
                leaf -= rate * gradient


def record(network, sizes, rows, sample, outputs, rate):
    name = "layers" if network in LAYERS else network.__name__
    out = {"model": name, "sizes": sizes, "rows": rows, "sample": sample, "outputs": outputs, "rate": rate, "losses": []}
    if network in LAYERS:
        out["layers"] = LAYERS[network]
    for w, logits, loss, gradients in trained(network, name, sizes, rows, sample, outputs, rate, 10):
        out["losses"].append(loss)
        if "logits" not in out:
            out["logits"] = digest("logits", logits)
            out["gradients"] = {n: digest(n, g) for n, g in zip(w.leaves, gradients)}
    # At a rate at which the loss of each network falls steadily: for comparisons in 16 bits.
    slow = rate / SLOWER.get(network, 1)
    out["slow_rate"] = slow
    out["slow_losses"] = [loss for _, _, loss, _ in trained(network, name, sizes, rows, sample, outputs, slow, 50)]
    return out


def recorded():
    return [record(*case) for case in CASES]
