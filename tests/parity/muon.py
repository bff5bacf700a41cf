"""torch.optim.Muon for the matrices of a network, and AdamW for its other parameters.

PyTorch runs the Newton-Schulz steps in bfloat16, which rounds to 8 bits of mantissa. millrace runs them in float32. So
that the comparison shows errors of float32 alone, the steps run in the type of the gradient here, which is float64.
"""
import torch
import torch.optim._muon


def newton_schulz(update, coefficients, steps, eps):
    a, b, c = coefficients
    x = update.T if update.shape[0] > update.shape[1] else update
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if update.shape[0] > update.shape[1] else x


torch.optim._muon._zeropower_via_newtonschulz = newton_schulz


class MuonAndAdamW:
    """groups: as PyTorch's optimizers have them. Parameters with two axes are matrices. keys: of millrace's [optim]."""

    def __init__(self, groups, keys):
        matrices = [g for g in groups if g["params"][0].ndim == 2]
        others = [g for g in groups if g["params"][0].ndim != 2]
        self.optimizers = [
            torch.optim.Muon(matrices, keys["lr"], momentum=keys["muon_momentum"], nesterov=keys["muon_nesterov"],
                             adjust_lr_fn=keys["muon_scale"]),
            torch.optim.AdamW(others, keys["lr"], (keys["beta1"], keys["beta2"]), keys["epsilon"])]

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


KEYS = {"name": "muon", "lr": 0.01, "muon_momentum": 0.95, "muon_nesterov": True, "muon_scale": "match_rms_adamw",
        "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.1, "clip": 0.0}
EMBEDDINGS = {"wte.weight", "wpe.weight", "embed_tokens.weight"}


def optimizer_of(leaves, keys):
    """Of the weights of a network, by name. A filter is a matrix with one row for each output."""
    groups = []
    for name, leaf in leaves.items():
        flat = leaf.detach()  # shares the memory of the leaf
        if name in EMBEDDINGS:
            flat = flat.reshape(-1)
        elif leaf.ndim > 1:
            flat = flat.reshape(len(leaf), -1)
        decay = keys["weight_decay"] if leaf.ndim > 1 else 0.0
        groups.append({"params": [torch.nn.Parameter(flat)], "weight_decay": decay})
    optimizer = MuonAndAdamW(groups, keys)

    def step(gradients):
        for group, gradient in zip(groups, gradients):
            group["params"][0].grad = gradient.reshape(group["params"][0].shape)
        optimizer.step()
    return step
