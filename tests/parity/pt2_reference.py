"""What PyTorch computes with a network on the batch of pt2_runs.py: losses, gradients, logits."""
import copy
import statistics

import torch
import torch.nn.functional as F

import pt2_runs


def batch_of(case):
    """Samples (channels first, scaled as millrace does it), and labels."""
    values = torch.tensor(pt2_runs.samples_of(case))
    if len(case["sample"]) > 1:
        x = values.reshape([case["rows"]] + case["sample"]).movedim(-1, 1)
        return x.double() / 255, torch.tensor(pt2_runs.labels_of(case)).reshape(pt2_runs.label_shape(case))
    x, y = values[:-1].reshape(case["rows"], -1), values[1:].reshape(case["rows"], -1)
    return x, y if case["target"] == "next" else y[:, -1]


def loss_of(logits, y):
    if y.dim() == 2 and logits.dim() == 3:  # tokens
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())
    return F.cross_entropy(logits, y)


class Reference:
    """A network with the weights that it had at first, in float32 or float64."""

    def __init__(self, network, case, dtype=torch.float64, rotated=0):
        """rotated: by how many rows each half of the batch is, which changes nothing but rounding."""
        self.network = copy.deepcopy(network).to(dtype)
        self.state = copy.deepcopy(self.network.state_dict())
        x, y = batch_of(case)
        x, y = (torch.cat([half.roll(rotated, 0) for half in rows.chunk(2)]) for rows in (x, y))
        self.case, self.x, self.y = case, x.to(dtype) if x.is_floating_point() else x, y

    def start(self):
        self.network.load_state_dict(self.state)
        return self.network.train()

    def step(self, way):
        """Adds the gradients of one step; the loss. halves: as two ranks compute it, each with its half of the rows."""
        parts = 1 if way == "whole" else 2
        total = 0.0
        self.network.zero_grad()
        for x, y in zip(self.x.chunk(parts), self.y.chunk(parts)):
            loss = loss_of(self.network(x), y) / parts
            loss.backward()
            total += float(loss.detach())
        return total

    def gradients(self, way):
        self.start()
        self.step(way)
        return {name: p.grad.detach().clone() for name, p in self.network.named_parameters() if p.grad is not None}

    def losses(self, optimizer, way):
        parameters = self.start().parameters()
        if optimizer == "sgd":
            made = torch.optim.SGD(parameters, self.case["lr"], momentum=pt2_runs.MOMENTUM)
        else:
            made = torch.optim.AdamW(parameters, self.case["adamw_lr"], weight_decay=0)
        out = []
        for _ in range(pt2_runs.STEPS):
            out.append(self.step(way))
            made.step()
        return out

    def all_losses(self):
        return {optimizer: {way: self.losses(optimizer, way) for way in ("whole", "halves")}
                for optimizer in pt2_runs.OPTIMIZERS}

    @torch.no_grad()
    def logits(self):
        """Of an evaluation, after one forward pass of training, which moves the running statistics. Channels last."""
        self.start()(self.x)
        out = self.network.eval()(self.x)
        return out if len(self.case["sample"]) == 1 else out.movedim(1, -1)

    @torch.no_grad()
    def with_dropout(self, steps):
        """Mean and deviation of the losses of many steps that do not change the weights."""
        out = {}
        for way, parts in (("whole", 1), ("halves", 2)):
            self.start()
            pieces = list(zip(self.x.chunk(parts), self.y.chunk(parts)))
            losses = [sum(float(loss_of(self.network(x), y)) for x, y in pieces) / parts for _ in range(steps)]
            out[way] = {"mean": statistics.fmean(losses), "deviation": statistics.stdev(losses)}
        return out
