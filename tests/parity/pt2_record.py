#!/usr/bin/env python3
"""Exports the networks of pt2_models.py, pt2_more.py, pt2_text.py, pt2_recurrent.py and pt2_inputs.py, and records
what PyTorch computes with them.

    python3 tests/parity/pt2_record.py        needs PyTorch 2.9 or newer

Writes tests/fixtures/pt2/NAME.pt2 and, in tests/parity/recorded, pt2.json, pt2_more.json, pt2_text.json and
pt2_recurrent.json, which tests/model/pt2_parity_test.cpp reads, pt2_inputs.json for
tests/train/session/inputs_test.cpp, and pt2_runs.json, which pt2_runs.py reads.

    python3 tests/parity/pt2_record.py --runs        only pt2_runs.json, with the archives as they are
    python3 tests/parity/pt2_record.py FOLDER        archives and values in another folder
    MILLRACE_PARITY=FOLDER build/tests/model/test_model --gtest_filter='Pt2Parity.*'
    python3 tests/parity/pt2_runs.py build/millrace mpirun 2 --recorded FOLDER

The weights are float32 in the file. Everything is computed in float64, so that the comparison shows the error of
millrace's float32 alone.
"""
import json
import pathlib
import re
import sys

import torch
import torch.nn as nn

import pt2_inputs
import pt2_models
import pt2_more
import pt2_recurrent
import pt2_reference
import pt2_runs
import pt2_text
from networks import digest
from weights import channels_first, integers

ARCHIVES = pt2_runs.TESTS / "fixtures" / "pt2"
FOLDERS = dict.fromkeys(("signalcells", "signalrnn", "textrnn"), "recurrent/")  # of archives
TARGETS = {"unet": "map"} | dict.fromkeys(("gpt", "encoder", "decoder", "counted", "relative", "textgru", "textrnn"), "next")


def batch(name, rows, sample, outputs):
    if len(sample) == 1:
        return integers(name + " x", [rows] + sample, outputs), integers(name + " y", [rows] + sample, outputs)
    x = channels_first(integers(name + " x", [rows] + sample, 256).double() / 255)
    return x, integers(name + " y", [rows] + (sample[:-1] if name == "unet" else []), outputs)


def digest_of_logits(logits):
    return digest("logits", logits.movedim(1, -1) if logits.dim() == 4 else logits)


def export(network, x, path):
    """In float32, without the paths of this machine."""
    inputs = x if isinstance(x, tuple) else (x,)
    rows = ({0: torch.export.Dim("batch")},) * len(inputs)
    program = torch.export.export(network.float().train(), inputs, dynamic_shapes=rows)
    for node in program.graph.nodes:
        trace = node.meta.get("stack_trace")
        if trace:
            node.meta["stack_trace"] = re.sub(r'"[^"]*/(site-packages|tests)/', r'"\1/', trace)
    pathlib.Path(path).parent.mkdir(exist_ok=True)
    torch.export.save(program, path)


def archive_of(name):
    return FOLDERS.get(name, "") + name + ".pt2"


def losses_of(network, optimizer, x, y, steps):
    out = []
    for _ in range(steps):
        loss = pt2_reference.loss_of(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(float(loss.detach()))
    return out


def record(make, rows, sample, outputs, rate, folder=ARCHIVES):
    name, steps = make.__name__.lower(), 10
    torch.manual_seed(1)
    with torch.random.fork_rng():
        network = make()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):  # as after some training
                module.running_mean.uniform_(-0.2, 0.2)
                module.running_var.uniform_(0.5, 1.5)
    x, y = batch(name, rows, sample, outputs)
    export(network, x.float() if x.is_floating_point() else x, folder / archive_of(name))
    state = {key: value.double() if value.is_floating_point() else value.clone()
             for key, value in network.state_dict().items()}
    network.double()

    def start():
        network.load_state_dict(state)
        network.train()
        return network

    out = {"name": name, "archive": archive_of(name), "rows": rows, "sample": sample, "outputs": outputs, "rate": rate}
    out["evaluated"] = digest_of_logits(start().eval()(x))
    if name in ("random", "channels", "depth"):
        return out
    logits = start()(x)
    loss = pt2_reference.loss_of(logits, y)
    loss.backward()
    out["logits"] = digest_of_logits(logits)
    out["gradients"] = {n: digest(n, p.grad) for n, p in network.named_parameters() if p.grad is not None}
    out["losses"] = losses_of(start(), torch.optim.SGD(network.parameters(), rate), x, y, steps)
    out["adamw_rate"] = rate / 20
    out["adamw_losses"] = losses_of(start(), torch.optim.AdamW(network.parameters(), rate / 20, weight_decay=0), x, y,
                                    steps)
    return out


def network_of(make, archive):
    """With the weights of the archive. The class is needed for what is random in training."""
    network = make()
    network.load_state_dict(torch.export.load(archive).state_dict)
    return network


def record_runs(make, sample, outputs, rate, folder):
    name = make.__name__.lower()
    case = {"name": name, "archive": archive_of(name), "sample": sample, "outputs": outputs,
            "target": TARGETS.get(name, "class"), "rows": 8, "lr": rate / 5, "adamw_lr": rate / 20}
    reference = pt2_reference.Reference(network_of(make, folder / case["archive"]), case)
    if name == "random":
        torch.manual_seed(1)
        return case | {"steps": 400, "with_dropout": reference.with_dropout(10000)}
    return case | {"losses": reference.all_losses()}


def write(path, cases):
    lines = ",\n  ".join(map(json.dumps, cases))
    path.write_text(f'{{"pytorch": "{torch.__version__}", "cases": [\n  {lines}\n]}}\n')


def main():
    torch.set_num_threads(1)  # tensors are small
    archives, values = ARCHIVES, pt2_runs.TESTS / "parity" / "recorded"
    if sys.argv[1:] not in ([], ["--runs"]):
        archives = values = pathlib.Path(sys.argv[1])
    if sys.argv[1:] != ["--runs"]:
        write(values / "pt2.json", (record(*case, archives) for case in pt2_models.CASES))
        write(values / "pt2_more.json", (record(*case, archives) for case in pt2_more.CASES))
        write(values / "pt2_text.json", (record(*case, archives) for case in pt2_text.CASES))
        write(values / "pt2_recurrent.json", (record(*case, archives) for case in pt2_recurrent.CASES))
        torch.manual_seed(1)
        export(pt2_more.Refused(), torch.rand(2, 3, 12, 14), archives / "refused.pt2")
        two = pt2_inputs.record(archives / "twoinputs.pt2", export)
        (values / "pt2_inputs.json").write_text(json.dumps(two) + "\n")
    runs = pt2_models.CASES + pt2_text.CASES + pt2_recurrent.RUNS
    write(values / "pt2_runs.json", (record_runs(make, sample, outputs, rate, archives)
                                     for make, _, sample, outputs, rate in runs))


if __name__ == "__main__":
    main()
