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
    x = torch.from_numpy(f["x"][rank * share:(rank + 1) * share])
    y = torch.from_numpy(f["y"][rank * share:(rank + 1) * share]).long().flatten()


def unsupported(what):
    if rank == 0:
        print(json.dumps({"unsupported": what}))
    sys.exit(0)


images = x.dim() == 4
x = x.float() * order["scale"]
if images:
    x = x.permute(0, 3, 1, 2).contiguous()
    mean, std = (torch.tensor(order[k]).view(1, -1, 1, 1) for k in ("mean", "std"))
    x = (x - mean) / std

net = NETWORKS[order["network"]]()
with h5py.File(order["weights"]) as f:
    stored = f["parameters"]
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            value = torch.from_numpy(stored[name][()])
            parameter.copy_(value.permute(0, 3, 1, 2) if parameter.dim() == 4 else value.view_as(parameter))
if images and order["channels_last"]:
    net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
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
loss_of = nn.CrossEntropyLoss()


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=order["precision"] == "bf16"):
        loss = loss_of(run(x), y)
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
