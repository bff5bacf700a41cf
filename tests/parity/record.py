#!/usr/bin/env python3
"""Records what PyTorch computes, so that tests can compare with it without PyTorch.

    python3 tests/parity/record.py [FOLDER]        default: the folder recorded beside this file

schedules.json: learning rates of PyTorch's schedulers, step by step, each with the keys of millrace that give the same
schedule. tests/train/schedule_parity_test.cpp reads it.
optimizers.json: weights after some steps of PyTorch's optimizers, and of timm's Lars and Lamb, which PyTorch does not have.
tests/model/optimizer_parity_test.cpp reads it.
networks.json: logits, gradients, the first ten losses, and fifty at a lower rate, of networks of the zoo (networks.py;
zoo.py has the networks, weights.py their weights).
tests/model/network_parity_test.cpp reads it.
"""
import json
import pathlib
import sys

import timm
import timm.optim
import torch
from torch.optim import lr_scheduler as schedulers

import muon
import networks
from weights import uniform


def rates(make_scheduler, lr, steps):
    """The learning rate of each of the steps."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = make_scheduler(optimizer)
    out = [optimizer.param_groups[0]["lr"]]
    while len(out) < steps:
        optimizer.step()
        scheduler.step()
        out.append(optimizer.param_groups[0]["lr"])
    return out


def warmed_up(warmup, *parts):
    """Linear warm-up over `warmup` steps, then each part, a maker of a scheduler with the step at which it begins."""
    def make(optimizer):
        makers = [lambda o: schedulers.LinearLR(o, start_factor=1 / (warmup + 1), total_iters=warmup)]
        makers += [maker for _, maker in parts]
        return schedulers.SequentialLR(optimizer, [maker(optimizer) for maker in makers], [step for step, _ in parts])
    return make


def schedule_cases():
    """(keys of millrace without their section, steps, maker of the scheduler). An epoch has 10 steps."""
    lr, low, steps, warmup, decay = 0.8, 0.02, 40, 4, 10
    base = {"lr": lr, "warmup": warmup / 10, "min_lr": low}
    falling = {
        "linear": lambda o, n: schedulers.LinearLR(o, 1, low / lr, n),
        "cosine": lambda o, n: schedulers.CosineAnnealingLR(o, n, low),
        "sqrt": lambda o, n: schedulers.LambdaLR(o, lambda s: (low + (lr - low) * (1 - (s / n) ** 0.5)) / lr),
    }
    constant = (warmup, lambda o: schedulers.ConstantLR(o, factor=1))
    yield base | {"schedule": "constant"}, steps, warmed_up(warmup, constant)
    for name in ("linear", "cosine"):
        yield (base | {"schedule": name}, steps,
               warmed_up(warmup, (warmup, lambda o, name=name: falling[name](o, steps - warmup))))
    for name, maker in falling.items():
        yield (base | {"schedule": "wsd", "decay": decay / steps, "decay_shape": name}, steps,
               warmed_up(warmup, constant, (steps - decay, lambda o, maker=maker: maker(o, decay))))
    yield ({"lr": lr, "schedule": "step", "milestones": [1, 3], "gamma": 0.3}, steps,
           lambda o: schedulers.MultiStepLR(o, [10, 30], 0.3))
    for power in (1, 0.9, 2):
        yield ({"lr": lr, "schedule": "polynomial", "power": power}, steps,
               lambda o, power=power: schedulers.PolynomialLR(o, steps, power))
    yield ({"lr": lr, "schedule": "polynomial", "power": 2, "warmup": warmup / 10}, steps,
           warmed_up(warmup, (warmup, lambda o: schedulers.PolynomialLR(o, steps - warmup, 2))))
    for pct_start, count in ((0.3, 40), (0.3, 7), (0.05, 40), (0.0, 20)):
        yield ({"lr": lr, "schedule": "one_cycle", "pct_start": pct_start}, count,
               lambda o, pct_start=pct_start, count=count: schedulers.OneCycleLR(o, lr, count, pct_start=pct_start))


def plateau_cases():
    """Results of evaluations, and the factor on the learning rate after each of them."""
    falling = [3.0, 2.5, 2.49, 2.4899, 2.4898, 2.4897, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 1.9999, 1.9998, 1.9]
    rising = [0.1, 0.5, 0.5, 0.50004, 0.50006, 0.4, 0.6, 0.6, float("nan"), 0.6, 0.6, 0.7, 0.7]
    for metric, values in (("loss", falling), ("accuracy", rising)):
        for patience, gamma in ((0, 0.5), (2, 0.1), (3, 0.7)):
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
            scheduler = schedulers.ReduceLROnPlateau(optimizer, "min" if metric == "loss" else "max", gamma, patience,
                                                     eps=0)
            after = []
            for value in values:
                scheduler.step(value)
                after.append(optimizer.param_groups[0]["lr"])
            yield {"metric": metric, "patience": patience, "gamma": gamma, "rates": after,
                   "values": [None if value != value else value for value in values]}


def optimizer_cases():
    """(keys of millrace, maker of the optimizer from two groups of parameters, with and without weight decay)."""
    for momentum in (0.0, 0.9):
        for nesterov in (False, True)[:1 + (momentum > 0)]:
            for clip in (0.0, 0.5):
                keys = {"name": "sgd", "lr": 0.05, "momentum": momentum, "nesterov": nesterov, "weight_decay": 0.01,
                        "clip": clip}
                yield keys, lambda groups, k=keys: torch.optim.SGD(groups, k["lr"], k["momentum"], nesterov=k["nesterov"])
    for beta1, beta2, epsilon, clip in ((0.9, 0.999, 1e-8, 0.0), (0.8, 0.95, 1e-6, 0.5)):
        keys = {"name": "adamw", "lr": 0.01, "beta1": beta1, "beta2": beta2, "epsilon": epsilon, "weight_decay": 0.1,
                "clip": clip, "ema": 0.9}
        yield keys, lambda groups, k=keys: torch.optim.AdamW(groups, k["lr"], (k["beta1"], k["beta2"]), k["epsilon"])
    for shape, scale, nesterov, clip in (([4, 10], "match_rms_adamw", True, 0.0), ([10, 4], "original", True, 0.5),
                                         ([8, 5], "spectral_unclamped", False, 0.0)):
        keys = muon.KEYS | {"muon_scale": scale, "muon_nesterov": nesterov, "clip": clip, "shape": shape, "ema": 0.9}
        yield keys, lambda groups, k=keys: muon.MuonAndAdamW(groups, k)
    for momentum, nesterov, clip in ((0.9, False, 0.0), (0.8, True, 0.5)):
        keys = {"name": "lars", "lr": 0.05, "momentum": momentum, "nesterov": nesterov, "weight_decay": 0.01, "clip": clip,
                "trust": 0.4, "epsilon": 1e-8}
        yield keys, lambda groups, k=keys: timm.optim.Lars(groups, k["lr"], k["momentum"], nesterov=k["nesterov"],
                                                           trust_coeff=k["trust"], eps=k["epsilon"])
    for beta1, beta2, epsilon, clip in ((0.9, 0.999, 1e-6, 0.0), (0.8, 0.95, 1e-8, 0.5)):
        keys = {"name": "lamb", "lr": 0.01, "beta1": beta1, "beta2": beta2, "epsilon": epsilon, "weight_decay": 0.1,
                "clip": clip, "ema": 0.9}
        yield keys, lambda groups, k=keys: timm.optim.Lamb(groups, k["lr"], betas=(k["beta1"], k["beta2"]),
                                                           eps=k["epsilon"], max_grad_norm=None)


def optimized(keys, maker):
    """Weights after some of 30 steps. The gradients are a formula of the step and the element."""
    counts = {"matrix": 40, "vector": 8}
    weights = {name: torch.nn.Parameter(uniform(name, count)) for name, count in counts.items()}
    if "shape" in keys:
        weights["matrix"] = torch.nn.Parameter(weights["matrix"].detach().reshape(keys["shape"]))
    decays = {"matrix": keys["weight_decay"], "vector": 0.0}
    optimizer = maker([{"params": [p], "weight_decay": decays[name]} for name, p in weights.items()])
    module = torch.nn.ParameterList(weights.values())
    averaged = torch.optim.swa_utils.AveragedModel(
        module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(keys.get("ema", 0.0)))
    averaged.update_parameters(module)  # the averages begin with the weights
    after = {}
    for step in range(30):
        for name, p in weights.items():
            p.grad = (uniform(f"{name} {step}", counts[name]) * (1 + step % 3)).reshape(p.shape)
        if keys["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(module.parameters(), keys["clip"])
        optimizer.step()
        averaged.update_parameters(module)
        if step in (0, 9, 29):
            after[step + 1] = [v for p in weights.values() for v in p.flatten().tolist()]
    averages = [v for p in averaged.module.parameters() for v in p.flatten().tolist()]
    return {"optim": keys, "weights": after} | ({"averages": averages} if "ema" in keys else {})


def main():
    torch.set_num_threads(1)  # tensors are small
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "recorded")
    cases = []
    for keys, steps, maker in schedule_cases():
        words = {key: [str(v) for v in (value if isinstance(value, list) else [value])] for key, value in keys.items()}
        cases.append({"optim": words, "total_steps": steps, "learning_rates": rates(maker, keys["lr"], steps)})
    lines = ",\n  ".join(json.dumps(case) for case in cases)
    plateau = ",\n  ".join(json.dumps(case) for case in plateau_cases())
    text = (f'{{"pytorch": "{torch.__version__}", "steps_per_epoch": 10, "cases": [\n  {lines}\n],\n'
            f'"plateau": [\n  {plateau}\n]}}\n')
    (folder / "schedules.json").write_text(text)
    cases = ",\n  ".join(json.dumps(optimized(*case)) for case in optimizer_cases())
    (folder / "optimizers.json").write_text(
        f'{{"pytorch": "{torch.__version__}", "timm": "{timm.__version__}", "cases": [\n  {cases}\n]}}\n')
    cases = ",\n  ".join(json.dumps(case) for case in networks.recorded())
    (folder / "networks.json").write_text(f'{{"pytorch": "{torch.__version__}", "cases": [\n  {cases}\n]}}\n')


if __name__ == "__main__":
    main()
