"""One rank of PyTorch's DistributedDataParallel over gloo on the CPU: pytorch_rank.py ORDER.json. Rank and ranks come from the environment.
Prints one JSON object on rank 0: the losses of the first steps and the median seconds of a step, or what this PyTorch does not support."""
import json
import os
import statistics
import sys
import time

import h5py
import torch
import torch.distributed as dist
from torch import nn

from networks import NETWORKS

order = json.load(open(sys.argv[1]))
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0))
ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
torch.set_num_threads(order["threads"])
torch.manual_seed(1)

with h5py.File(order["data"]) as f:
    share = f["x"].shape[0] // ranks
    rows = slice(rank * share, (rank + 1) * share)
    x = torch.from_numpy(f["x"][rows])
    tokens = "y" not in f
    y = x[:, 1:].long() if tokens else torch.from_numpy(f["y"][rows])
targets = y.is_floating_point()
y = y if targets else y.long() if tokens or y.dim() > 2 else y.long().flatten()


def unsupported(what):
    if rank == 0:
        print(json.dumps({"unsupported": what}))
    sys.exit(0)


spatial = x.dim() - 2
if tokens:
    x = x[:, :-1].long()
else:
    x = x.float() * order["scale"]
if spatial > 0:
    x = x.movedim(-1, 1).contiguous()
    mean, std = (torch.tensor(order[k]).view(1, -1, *(1,) * spatial) for k in ("mean", "std"))
    x = (x - mean) / std

net = NETWORKS[order["network"]]()
with h5py.File(order["weights"]) as f:
    stored = f["parameters"]
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            value = torch.from_numpy(stored[name][()])
            parameter.copy_(value.movedim(-1, 1) if parameter.dim() > 3 else value.view_as(parameter))
if order["channels_last"]:
    layout = torch.channels_last_3d if spatial == 3 else torch.channels_last
    net, x = net.to(memory_format=layout), x.to(memory_format=layout)
if ranks > 1:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(order["port"]))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
run = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True) if ranks > 1 else net
if order["compile"]:
    if not hasattr(torch, "compile"):
        unsupported("compile")
    run = torch.compile(run)
fused = {"fused": True} if order["fused"] else {}
try:
    if order["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(net.parameters(), lr=order["lr"], momentum=0.9, **fused)
    else:
        optimizer = torch.optim.AdamW(net.parameters(), lr=order["lr"], weight_decay=0, **fused)
except (TypeError, RuntimeError):  # fused, in PyTorch of 2022
    unsupported("fused")
loss_of = nn.MSELoss() if targets else nn.CrossEntropyLoss()


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=order["precision"] == "bf16"):
        out = run(x)
        loss = loss_of(out.flatten(0, 1), y.flatten()) if tokens else loss_of(out, y)
    loss.backward()
    optimizer.step()
    return loss.detach()


losses, seconds = [], []
for number in range(order["steps"]):
    began = time.perf_counter()
    loss = step()
    seconds.append(time.perf_counter() - began)
    if number < 3:
        total = loss.double() / ranks
        if ranks > 1:
            dist.all_reduce(total)
        losses.append(total.item())
if ranks > 1:
    dist.barrier()
    dist.destroy_process_group()
if rank == 0:
    print(json.dumps({"losses": losses, "seconds": statistics.median(seconds[order["warmup"]:])}))
