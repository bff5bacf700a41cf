#!/usr/bin/env python3
"""Trains networks of torchvision, timm, transformers and MONAI with millrace and compares them with PyTorch.

    python3 tests/parity/pt2_table.py MILLRACE [--into FILE] [NAME... | --refused]

Writes recorded/pt2_networks.json, and the page docs/reference/pt2-networks.md (pt2_page.py) from it. NAME: only the
networks whose name begins so; the others stay as they were recorded. --refused: only those that were refused, or never
tried. --into: another file, and no page. Needs PyTorch, torchvision, timm, transformers, monai, einops and h5py.
"""
import gc
import importlib
import json
import logging
import pathlib
import re
import sys
import tempfile
import time
import warnings

import h5py
import torch

import pt2_networks
import pt2_page
import pt2_record
import pt2_reference
import pt2_runs

RATE = float(1 << 20)  # so large that the weights after one step are the gradients


def export(network, case):
    """For PyTorch, dimensions of 0 or 1 would be special."""
    tokens = len(case["sample"]) == 1
    sample = case["sample"] if tokens else case["sample"][-1:] + case["sample"][:-1]
    x = torch.zeros([2] + sample, dtype=torch.long if tokens else torch.float32)
    pt2_record.export(network, x, case["archive"])


def read_safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    out = {}
    for name, of in json.loads(data[8:8 + size]).items():
        if name != "__metadata__" and of["dtype"] == "F32":
            begin, end = of["data_offsets"]
            values = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]), dtype=torch.float32)
            out[name] = values.reshape(of["shape"]).double()
    return out


def relative(ours, theirs):
    return float((ours.double() - theirs).norm() / theirs.norm())


def gradient_error(ours, theirs):
    """Of the parameter where it is largest. Gradients that are rounding noise do not count: biases before a norm."""
    largest = max(g.norm() for g in theirs.values())
    return max(relative(ours[name], g) for name, g in theirs.items() if g.norm() > 1e-6 * largest)


class Comparison:
    """One network. The reference computes in float64; `single` is PyTorch in float32."""

    def __init__(self, program, case, keys, network):
        self.program, self.case, self.keys = program, case, keys
        self.reference = pt2_reference.Reference(network, case)
        self.network, self.single = network, pt2_reference.Reference(network, case, torch.float32)

    def our_gradients(self, ranks):
        run = self.program.train(self.case, self.keys, ranks, 1, "--optim.name", "sgd", "--optim.momentum", "0",
                                 "--optim.lr", str(RATE), "--checkpoint.safetensors", "on")
        after = read_safetensors(run / "model.safetensors")
        before = dict(self.reference.network.named_parameters())
        self.reference.start()
        return {name: (p.detach() - after[name]) / RATE for name, p in before.items() if name in after}

    def gradients(self):
        ours = theirs = 0.0
        for ranks, way in ((1, "whole"), (2, "halves")):
            expected = self.reference.gradients(way)
            ours = max(ours, gradient_error(self.our_gradients(ranks), expected))
            theirs = max(theirs, gradient_error(self.single.gradients(way), expected))
        return {"gradients": ours, "pytorch_gradients": theirs}

    def evaluation(self):
        """Of the logits; of tokens, which `predict` does not take, of the loss of an evaluation."""
        valid = ["--data.valid", self.keys[1]] if len(self.case["sample"]) == 1 else []
        run = self.program.train(self.case, self.keys, 1, 1, "--optim.name", "sgd", "--optim.lr", "0", *valid)
        expected = self.reference.logits()
        if valid:
            loss = float(pt2_reference.loss_of(expected, self.reference.y))
            return abs(json.loads((run / "summary.json").read_text())["valid_loss"] - loss) / loss
        checkpoint = str(next(run.glob("checkpoints/step-*.h5")))
        layer = re.search(r"= cross_entropy\((\S+), y\)", self.program.call(1, "inspect", checkpoint))[1]
        out = run / "logits.h5"
        self.program.call(1, "predict", checkpoint, "--data", self.keys[1], "--features", layer, "--output", str(out))
        with h5py.File(out) as file:
            ours = torch.from_numpy(file["features"][:]).reshape(expected.shape)
        return relative(ours, expected)

    def single_error(self, optimizer, way, expected):
        """The largest with the rows in four orders: each rounds in another way, and one of four can be ten times worse."""
        orders = [pt2_reference.Reference(self.network, self.case, torch.float32, rotated) for rotated in range(4)]
        return max(pt2_runs.largest_error(order.losses(optimizer, way), expected) for order in orders)

    def losses(self):
        errors, recorded, theirs = {}, {}, {}
        for optimizer in pt2_runs.OPTIMIZERS:
            for ranks, way in ((1, "whole"), (2, "halves")):
                expected = self.reference.losses(optimizer, way)
                recorded.setdefault(optimizer, {})[way] = expected
                error = pt2_runs.largest_error(self.program.losses(self.case, self.keys, ranks, optimizer), expected)
                errors.setdefault(optimizer, {})[way] = error
                if error > pt2_runs.TOLERANCE:
                    theirs.setdefault(optimizer, {})[way] = self.single_error(optimizer, way, expected)
        firsts = {(way, losses[0]) for ways in recorded.values() for way, losses in ways.items()}
        assert len(firsts) == 2, "PyTorch computes another first loss each time: something is still random"
        return {"losses": recorded, "errors": errors} | ({"pytorch_errors": theirs} if theirs else {})

    def all(self):
        text = self.program.call(1, "inspect", self.case["archive"])
        out = {"operations": int(re.search(r"operations: (\d+)", text)[1]),
               "parameters": sum(p.numel() for p in self.reference.network.parameters())}
        return out | {"logits": self.evaluation()} | self.gradients() | self.losses()


def refusal(program, case, keys):
    """The message of millrace, or None."""
    error = program.call(1, "plan", "-c", "/dev/null", *keys, "--model.name", "pt2", "--model.file",
                         case["archive"], "--train.global_batch", str(case["rows"]), fails=True)
    return error and error.removeprefix("error: model.file: ").replace(case["archive"] + ": ", "").replace(
        case["archive"], "it")


def tried(program, of):
    case = {"library": of.library, "name": of.name, "sample": of.sample, "target": of.target, "outputs": of.outputs,
            "rows": of.rows, "lr": of.lr, "adamw_lr": of.adamw_lr}
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float32)
    try:
        network = pt2_networks.without_randomness(of.make()).train()
        exported = case | {"archive": str(program.folder / "net.pt2")}
        export(network, exported)
    except Exception as e:
        return case | {"refused": f"torch.export ends with {type(e).__name__}: {str(e).strip().splitlines()[0]}"}
    keys = program.pack(exported)
    refused = refusal(program, exported, keys)
    if refused:
        return case | {"refused": refused}
    torch.set_default_dtype(torch.float64)
    return case | Comparison(program, exported, keys, network).all()


def versions():
    return {name: importlib.import_module(name).__version__.split("+")[0]
            for name in ("torch", "torchvision", "timm", "transformers", "monai")}


def write(path, networks):
    lines = ",\n  ".join(json.dumps(case) for case in networks)
    path.write_text(f'{{"versions": {json.dumps(versions())}, "networks": [\n  {lines}\n]}}\n')


def show(case, seconds):
    title = f"{case['library']} {case['name']}"
    if "refused" in case:
        return print(f"{title:<45} refused: {case['refused'][:150]}", flush=True)
    errors = [case["errors"][o][way] for o in pt2_runs.OPTIMIZERS for way in ("whole", "halves")]
    print(f"{title:<45} logits {case['logits']:.0e} gradients {case['gradients']:.0e}, PyTorch "
          f"{case['pytorch_gradients']:.0e}; losses {' '.join(f'{e:.0e}' for e in errors)}"
          f"{'' if pt2_page.agrees(case) else ' DIFFERS'} {case.get('pytorch_errors', '')} {seconds:.0f} s", flush=True)


def chosen(of, arguments, known):
    if arguments == ["--refused"]:
        return known is None or "refused" in known
    return not arguments or of.name.startswith(tuple(arguments))


def main():
    arguments = sys.argv[2:]
    into = pt2_page.RECORDED
    if arguments[:1] == ["--into"]:
        into, arguments = pathlib.Path(arguments[1]), arguments[2:]
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)  # several threads wait for each other if the machine is busy
    known = {}
    if arguments and into.exists():
        known = {(c["library"], c["name"]): c for c in json.loads(into.read_text())["networks"]}
    networks = list(pt2_networks.all_networks())
    for of in networks:
        if not chosen(of, arguments, known.get((of.library, of.name))):
            continue
        begin = time.time()
        with tempfile.TemporaryDirectory() as folder:
            known[of.library, of.name] = tried(pt2_runs.Program(sys.argv[1], "mpirun", folder), of)
        show(known[of.library, of.name], time.time() - begin)
        write(into, [known[n.library, n.name] for n in networks if (n.library, n.name) in known])
        gc.collect()
    if into == pt2_page.RECORDED:
        pt2_page.write()
    wrong = [case["name"] for case in known.values() if "errors" in case and not pt2_page.agrees(case)]
    sys.exit(f"losses differ: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
