"""Weights and batches from a formula that the tests share, and layers that use such weights.

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


def channels_first(x):
    return x.movedim(-1, 1)


def channels_last(x):
    return x.movedim(1, -1)


def is_factor(name):
    """Factors lie around 1. The last ones of a bottleneck lie around 0: with 50 layers, the gradients would otherwise
    amplify errors of rounding a thousandfold."""
    return name.endswith(".weight") and not name.endswith(".bn3.weight")


class Weights:
    """The parameters of a network by name, made when they are first asked for. Their layout is millrace's: outputs,
    spatial extents, inputs."""

    def __init__(self):
        self.leaves = {}
        self.running = {}  # of each batch norm: mean and variance
        self.training = True

    def __call__(self, name, *shape):
        if name not in self.leaves:
            values = uniform(name, math.prod(shape))
            if len(shape) > 1:
                values = values * (math.prod(shape) / shape[0]) ** -0.5
            else:
                values = 0.1 * values + is_factor(name)
            self.leaves[name] = values.float().double().reshape(shape).requires_grad_()
        return self.leaves[name]

    def linear(self, x, name, outputs, bias=True):
        return F.linear(x, self(name + ".weight", outputs, x.shape[-1]), self(name + ".bias", outputs) if bias else None)

    def conv(self, x, name, outputs, kernel, stride=1, padding=0, bias=False, groups=1):
        """Of images or volumes. kernel: one extent for all axes, or one for each."""
        extents = kernel if isinstance(kernel, tuple) else (kernel,) * (x.dim() - 2)
        w = channels_first(self(name + ".weight", outputs, *extents, x.shape[1] // groups))
        function = F.conv3d if x.dim() == 5 else F.conv2d
        return function(x, w, self(name + ".bias", outputs) if bias else None, stride, padding, groups=groups)

    def conv_transpose(self, x, name, outputs, kernel, stride, padding=0, output_padding=0, bias=False, groups=1):
        extents = (kernel,) * (x.dim() - 2)
        w = channels_first(self(name + ".weight", x.shape[1], *extents, outputs // groups))
        function = F.conv_transpose3d if x.dim() == 5 else F.conv_transpose2d
        return function(x, w, self(name + ".bias", outputs) if bias else None, stride, padding, output_padding, groups)

    def group_norm(self, x, name, groups):
        n = x.shape[1]
        return F.group_norm(x, groups, self(name + ".weight", n), self(name + ".bias", n))

    def layer_norm(self, x, name, epsilon=1e-5):
        n = x.shape[-1]
        return F.layer_norm(x, (n,), self(name + ".weight", n), self(name + ".bias", n), epsilon)

    def batch_norm(self, x, name):
        n = x.shape[1]
        mean, variance = self.running.setdefault(name, (torch.zeros(n), torch.ones(n)))
        return F.batch_norm(x, mean, variance, self(name + ".weight", n), self(name + ".bias", n), self.training)
