"""What PyTorch computes with networks of millrace's zoo (zoo.py), and with layers that no network of the zoo has."""
import itertools

import torch
import torch.nn.functional as F

import muon
from weights import Weights, channels_first, channels_last, integers, uniform
from zoo import convnext, cosmoflow, gpt2, hyperspectral, llama, mlp, resnet, unet, vit


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
    y = F.relu(w.conv(y, "c", 3, 3, bias=True)).permute(0, 2, 3, 4, 1).flatten(3).permute(0, 3, 1, 2)
    y = F.gelu(w.conv_transpose(y, "d", 4, 2, 2, bias=True, groups=2))
    return w.linear(y.mean((2, 3)), "e", outputs)


def heads(w, x, outputs):
    """Three losses, of which two read one trunk and one a result in the middle: see `layers`."""
    y = F.relu(w.batch_norm(w.conv(x, "a", 8, 3, padding=1), "an"))
    early = w.linear(y.mean((2, 3)), "early", outputs)
    y = F.gelu(w.conv(F.max_pool2d(y, 2), "b", 12, 3, padding=1)).mean((2, 3))
    return early, w.linear(y, "kind", outputs), w.linear(y, "energy", 2)


LAYERS = {heads: [
          "conv 8 3 pad=same as=a", "batchnorm as=an", "relu as=middle", "globalpool", "linear 5 as=early",
          "loss cross_entropy y=kind weight=0.3 as=loss_early", "maxpool 2 from=middle", "conv 12 3 pad=same as=b",
          "gelu", "globalpool as=trunk", "linear 5 as=kind",
          "loss cross_entropy y=kind label_smoothing=0.1 as=loss_kind", "linear 2 from=trunk as=energy",
          "loss smooth_l1 y=energy beta=0.5 weight=2 as=loss_energy"],
          layers: [
          "conv 8 3 pad=same as=a", "batchnorm as=an", "silu as=s", "maxpool 2", "conv 16 3 pad=same as=b",
          "batchnorm as=bn", "leaky_relu", "upsample 2 mode=linear", "concat s", "conv 12 3 pad=same bias=on as=c",
          "hardswish", "elu", "upsample 2", "slice 2 7", "globalpool", "linear outputs as=d"],
          volumes: [
          "conv 8 3 stride=2 pad=1 as=a", "groupnorm 2 as=an", "relu",
          "convt 6 3 stride=2 pad=1 output_pad=1 as=b", "instancenorm as=bn", "relu", "se 2 as=se", "channels_to_axis", "conv 3 3 bias=on as=c", "relu", "axis_to_channels",
          "convt 4 2 stride=2 groups=2 bias=on as=d", "gelu", "globalpool", "linear outputs as=e"]}
# Network, its sizes, rows, shape of a sample (tokens: one axis), outputs, learning rate. No ReLU of the first step has an
# input so close to 0 that rounding in float32 changes its sign. Another batch can have one, which changes gradients.
CASES = [
    (gpt2, {"blocks": 2, "width": 64, "heads": 2}, 3, [24], 96, 0.2),
    (llama, {"blocks": 2, "width": 64, "heads": 4, "key_heads": 2, "feed_forward": 96}, 3, [24], 96, 0.2),
    (vit, {"blocks": 3, "width": 48, "heads": 3, "patch": 4}, 5, [16, 16, 3], 10, 0.005),
    (convnext, {"width": 8}, 4, [32, 32, 3], 10, 0.005),
    (layers, {}, 6, [10, 12, 3], 10, 0.05),
    (volumes, {}, 6, [10, 12, 3], 10, 0.05),
    (mlp, {"hidden": [24, 16]}, 6, [5, 4, 3], 10, 0.05),
    (resnet, {"depth": 8, "width": 8, "stem": "cifar"}, 6, [16, 16, 3], 10, 0.05),
    (resnet, {"depth": 8, "width": 8, "stem": "pool"}, 6, [16, 16, 3], 10, 0.05),
    (resnet, {"depth": 18, "width": 4, "stem": "imagenet"}, 6, [40, 40, 3], 10, 0.05),
    (resnet, {"depth": 50, "width": 4, "stem": "cifar"}, 6, [10, 10, 3], 10, 0.02),
    (resnet, {"depth": 18, "width": 16, "stem": "cifar"}, 16, [16, 16, 3], 10, 0.05),
    (resnet, {"depth": 50, "width": 8, "stem": "cifar"}, 16, [12, 12, 3], 10, 0.02),
    (unet, {"blocks": 2, "width": 8}, 3, [16, 12, 3], 4, 0.04),
    (unet, {"blocks": 2, "width": 8, "transposed": True}, 3, [16, 12, 3], 4, 0.05),
    (unet, {"blocks": 2, "width": 8, "ignored": 3}, 3, [16, 12, 3], 4, 0.05),
    (unet, {"blocks": 2, "width": 4}, 3, [12, 8, 8, 2], 4, 0.18),
    (cosmoflow, {"width": 2}, 2, [64, 32, 32, 2], 4, 0.05),
    (hyperspectral, {}, 4, [10, 9, 15], 6, 0.05),
    (heads, {}, 6, [10, 12, 3], 5, 0.05),
]


MUON = {gpt2, llama, resnet, convnext}  # of resnet, one with few layers
SLOWER = {gpt2: 50, llama: 50, vit: 5, convnext: 5, resnet: 20, unet: 3, hyperspectral: 2, heads: 4}


def batch(network, name, rows, sample, outputs, ignored=None):
    """Samples, and labels or targets. Images and volumes have channels first here. ignored: this label becomes -1."""
    if len(sample) == 1:
        return integers(name + " x", [rows] + sample, outputs), integers(name + " y", [rows] + sample, outputs)
    x = channels_first(integers(name + " x", [rows] + sample, 256).double() / 255)
    if network is cosmoflow:
        return x, uniform(name + " y", rows * outputs).float().double().reshape(rows, outputs)
    if network is heads:
        return x, (integers(name + " y", [rows], outputs), uniform(name + " energy", rows * 2).float().double().reshape(rows, 2))
    y = integers(name + " y", [rows] + (sample[:-1] if network is unet else []), outputs)
    return x, y if ignored is None else torch.where(y == ignored, -1, y)


def loss_of(network, logits, y):
    """The mean over rows, and over the positions or features of each."""
    if network is heads:
        early, kind, energy = logits
        return (0.3 * F.cross_entropy(early, y[0]) + F.cross_entropy(kind, y[0], label_smoothing=0.1)
                + 2 * F.smooth_l1_loss(energy, y[1], beta=0.5))
    if network is cosmoflow:
        return F.mse_loss(logits, y)
    if network is unet:
        return F.cross_entropy(logits, y, ignore_index=-1)  # the classes are the second axis
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def digest(name, values):
    """What a test compares: the norm, and the product with a vector of the formula."""
    values = values.detach().reshape(-1)
    return [float(values.norm()), float(values @ uniform(name + " digest", len(values)))]


def trained(network, name, sizes, rows, sample, outputs, rate, steps):
    """For each step: the weights before it, the logits, the loss and the gradients. SGD, or Muon with a rate of None.
    With batch norms also the weights and the logits at the end, normalised by the running statistics."""
    w = Weights()
    descend = None
    sizes = dict(sizes)
    x, y = batch(network, name, rows, sample, outputs, sizes.pop("ignored", None))
    for _ in range(steps):
        logits = network(w, x, outputs, **sizes)
        loss = loss_of(network, logits, y)
        gradients = torch.autograd.grad(loss, list(w.leaves.values()))
        yield w, logits, float(loss.detach()), gradients
        if rate is None:
            descend = descend or muon.optimizer_of(w.leaves, muon.KEYS)
            descend(gradients)
            continue
        with torch.no_grad():
            for leaf, gradient in zip(w.leaves.values(), gradients):
                leaf -= rate * gradient
    if w.running:
        w.training = False
        yield w, network(w, x, outputs, **sizes), None, None


def record(network, sizes, rows, sample, outputs, rate):
    name = "layers" if network in LAYERS else network.__name__
    out = {"model": name, "sizes": sizes, "rows": rows, "sample": sample, "outputs": outputs, "rate": rate, "losses": []}
    if network in LAYERS:
        out["layers"] = LAYERS[network]
    deep = sizes.get("depth", 0) > 8
    # Of the many values of a deep network with 16 rows, a ReLU's input crosses 0 by rounding: only for 16 bits.
    steps = 0 if deep and rows == 16 else 10
    for w, logits, loss, gradients in trained(network, name, sizes, rows, sample, outputs, rate, steps):
        last = logits[-1] if network is heads else channels_last(logits) if network is unet else logits
        if loss is None:
            out["evaluated"] = digest("evaluated", last)
            out["running"] = {n: digest(n, torch.cat(both)) for n, both in w.running.items()}
            continue
        out["losses"].append(loss)
        if "logits" not in out:
            out["logits"] = digest("logits", last)
            out["gradients"] = {n: digest(n, g) for n, g in zip(w.leaves, gradients)}
    # At a rate at which the loss of each network falls steadily: for comparisons in 16 bits. In deep residual
    # networks with norms over few values, rounding to 16 bits changes the losses too much for that.
    if deep and rows < 16:
        return out

    def losses(rate, steps):
        made = trained(network, name, sizes, rows, sample, outputs, rate, steps)
        return [loss for _, _, loss, _ in itertools.islice(made, steps)]

    slow = rate / SLOWER.get(network, 1)
    out["slow_rate"] = slow
    if network in MUON and not deep:
        out["muon"] = muon.KEYS
        out["muon_losses"] = losses(None, 10)
    out["slow_losses"] = losses(slow, 50)
    return out


def recorded():
    return [record(*case) for case in CASES]
