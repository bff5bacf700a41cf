"""Networks of millrace's zoo in PyTorch. x: channels first, or tokens."""
import torch
import torch.nn.functional as F

from weights import channels_first, channels_last


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
    x = channels_first(w.layer_norm(channels_last(w.conv(x, "stem.0", width, patch, patch, bias=True)), "stem.1", 1e-6))
    for stage, blocks in enumerate((3, 3, 9, 3)):
        if stage > 0:
            width *= 2
            x = channels_first(w.layer_norm(channels_last(x), f"stages.{stage}.downsample.0", 1e-6))
            x = w.conv(x, f"stages.{stage}.downsample.1", width, 2, 2, bias=True)
        for block in range(blocks):
            at = f"stages.{stage}.blocks.{block}."
            y = channels_last(w.conv(x, at + "conv_dw", width, 7, padding=3, bias=True, groups=width))
            y = F.gelu(w.linear(w.layer_norm(y, at + "norm", 1e-6), at + "mlp.fc1", 4 * width))
            x = x + channels_first(w.linear(y, at + "mlp.fc2", width) * w(at + "gamma.weight", width))
    return w.linear(w.layer_norm(x.mean((2, 3)), "head.norm", 1e-6), "head.fc", outputs)


def mlp(w, x, outputs, hidden):
    x = channels_last(x).flatten(1)
    for i, width in enumerate(hidden, 1):
        x = F.relu(w.linear(x, f"fc{i}", width))
    return w.linear(x, f"fc{len(hidden) + 1}", outputs)


def resnet(w, x, outputs, depth, width, stem):
    """torchvision's for the depths 18 and 50; depths of 6n + 2 as He et al. have them for CIFAR."""
    def conv_norm(x, conv, norm, channels, kernel, stride=1):
        return w.batch_norm(w.conv(x, conv, channels, kernel, stride, kernel // 2), norm)

    bottleneck = depth == 50
    large = stem == "imagenet"
    x = F.relu(conv_norm(x, "conv1", "bn1", width, 7 if large else 3, 2 if large else 1))
    if stem != "cifar":
        x = F.max_pool2d(x, 3, 2, 1) if large else F.max_pool2d(x, 2)
    for stage, blocks in enumerate({18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}.get(depth, 3 * ((depth - 2) // 6,))):
        for block in range(blocks):
            at = f"layer{stage + 1}.{block}."
            channels = width << stage
            stride = 2 if stage > 0 and block == 0 else 1
            if bottleneck:
                y = F.relu(conv_norm(x, at + "conv1", at + "bn1", channels, 1))
                y = F.relu(conv_norm(y, at + "conv2", at + "bn2", channels, 3, stride))
                y = conv_norm(y, at + "conv3", at + "bn3", 4 * channels, 1)
            else:
                y = F.relu(conv_norm(x, at + "conv1", at + "bn1", channels, 3, stride))
                y = conv_norm(y, at + "conv2", at + "bn2", channels, 3)
            if x.shape != y.shape:
                x = conv_norm(x, at + "downsample.0", at + "downsample.1", y.shape[1], 1, stride)
            x = F.relu(y + x)
    return w.linear(x.mean((2, 3)), "fc", outputs)


def double_conv(w, x, name, middle, width):
    x = F.relu(w.batch_norm(w.conv(x, name + ".double_conv.0", middle, 3, padding=1), name + ".double_conv.1"))
    return F.relu(w.batch_norm(w.conv(x, name + ".double_conv.3", width, 3, padding=1), name + ".double_conv.4"))


def unet(w, x, outputs, blocks, width, transposed=False):
    """github.com/milesial/Pytorch-UNet of images or volumes, but with align_corners=False."""
    pool = F.max_pool3d if x.dim() == 5 else F.max_pool2d
    linear = "trilinear" if x.dim() == 5 else "bilinear"
    x = double_conv(w, x, "inc", width, width)
    skipped = []
    for level in range(1, blocks + 1):
        skipped.append(x)
        wide = (width << level) // (1 if level < blocks or transposed else 2)
        x = double_conv(w, pool(x, 2), f"down{level}.maxpool_conv.1", wide, wide)
    for up in range(1, blocks + 1):
        middle = width << (blocks - up)
        if transposed:
            x = w.conv_transpose(x, f"up{up}.up", middle, 2, 2, bias=True)
        else:
            x = F.interpolate(x, scale_factor=2, mode=linear, align_corners=False)
        x = torch.cat([skipped.pop(), x], 1)
        x = double_conv(w, x, f"up{up}.conv", middle, middle if up == blocks or transposed else middle // 2)
    return w.conv(x, "outc.conv", outputs, 1, bias=True)


def cosmoflow(w, x, outputs, width=32):
    """MLPerf HPC's from 1.0 on, with leaky ReLUs of slope 0.01 and linear results."""
    for layer in range(5):
        x = w.conv(x, f"conv{layer + 1}", width << layer, 3, padding=1, bias=True)
        x = F.max_pool3d(F.leaky_relu(x), 2)
    x = channels_last(x).flatten(1)
    for i, hidden in enumerate((128, 64), 1):
        x = F.leaky_relu(w.linear(x, f"linear{i}", hidden))
    return w.linear(x, "linear3", outputs)


def hyperspectral(w, x, outputs):
    """HybridSN (Roy et al. 2019). The bands become the last axis of a volume, then a part of the channels."""
    x = channels_last(x)[:, None]
    for i, (channels, kernel) in enumerate(((8, (3, 3, 7)), (16, (3, 3, 5)), (32, (3, 3, 3))), 1):
        x = F.relu(w.conv(x, f"conv{i}", channels, kernel, bias=True))
    x = channels_first(channels_last(x).flatten(3))
    x = channels_last(F.relu(w.conv(x, "conv4", 64, 3, bias=True))).flatten(1)
    for i, hidden in enumerate((256, 128), 1):
        x = F.relu(w.linear(x, f"linear{i}", hidden))
    return w.linear(x, "linear3", outputs)
