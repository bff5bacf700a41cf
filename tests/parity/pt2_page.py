#!/usr/bin/env python3
"""Makes docs/reference/pt2-networks.md from recorded/pt2_networks.json. Needs no PyTorch.

    python3 tests/parity/pt2_page.py [--check]        --check: only compares, and exits with 1 if the page is another one
"""
import json
import sys

import pt2_runs

RECORDED = pt2_runs.TESTS / "parity" / "recorded" / "pt2_networks.json"
PAGE = pt2_runs.TESTS.parent / "docs" / "reference" / "pt2-networks.md"
# A network of many norms amplifies rounding: PyTorch's float32 is then as far from its float64.
ALLOWED = 3


def agrees(case):
    """Each loss is that of PyTorch in float64 to the tolerance, or as close as that of PyTorch in float32."""
    beside = case.get("pytorch_errors", {})
    return all(error <= max(pt2_runs.TOLERANCE, ALLOWED * beside.get(optimizer, {}).get(way, 0))
               for optimizer, ways in case["errors"].items() for way, error in ways.items())


def number(value):
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def loss_cell(case, optimizer, way):
    beside = case.get("pytorch_errors", {}).get(optimizer, {}).get(way)
    return number(case["errors"][optimizer][way]) + (f" ({number(beside)})" if beside is not None else "")


def sample(case):
    if len(case["sample"]) == 1:
        return f"{case['sample'][0]} tokens"
    return "x".join(map(str, case["sample"]))


def row(case):
    name = case["name"] if case["library"] == "by hand" else f"{case['library']} `{case['name']}`"
    fall = case["losses"]["sgd"]["whole"]
    losses = [f"{fall[0]:.4g}, {fall[-1]:.4g}"] + [loss_cell(case, o, way) for o in pt2_runs.OPTIMIZERS for way in ("whole", "halves")]
    return [name, sample(case), str(case["operations"]), f"{case['parameters']:,}", number(case["logits"]),
            f"{number(case['gradients'])} ({number(case['pytorch_gradients'])})", *losses]


def shortened(message):
    """The first two of the operations that are missing."""
    parts = message.split("; ")
    if "not supported yet" in message and len(parts) > 2:
        message = f"{parts[0]}; {parts[1]}; and {len(parts) - 2} more"
    return message.replace("|", "\\|").replace("<", "\\<")


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page(recorded):
    networks, versions = recorded["networks"], recorded["versions"]
    compared = [case for case in networks if "errors" in case]
    refused = [case for case in networks if "refused" in case]
    used = ", ".join(f"{name} {version}" for name, version in versions.items())
    why = [[f"{case['library']} `{case['name']}`", shortened(case["refused"])] for case in refused]
    head = ["network", "sample", "operations", "parameters", "logits", "gradients", "loss", "SGD, 1 rank", "SGD, 2 ranks",
            "AdamW, 1 rank", "AdamW, 2 ranks"]
    return f"""# Networks of PyTorch that were tried

Of networks that PyTorch has exported ([`model.name = pt2`](../how-to/pt2.md)), {len(compared)} train and were compared with
PyTorch, and {len(refused)} {"is" if len(refused) == 1 else "are"} refused. Those of libraries are unmodified; options make some of them small. A
network that returns several values has a wrapper that returns one.

`python3 tests/parity/pt2_table.py build/millrace` trains them, records the results in
`tests/parity/recorded/pt2_networks.json` and makes this page. A test compares the page with the record, and
`make parity` trains the networks again with the newest versions. Recorded with {used}.

## Compared with PyTorch

Random weights, one batch of {compared[0]['rows']} rows, a CPU, float32. Each number is a difference from PyTorch in float64.

- **logits**: of an evaluation, relative to their norm. For tokens: the relative difference of the loss of an
  evaluation.
- **gradients**: of the first step, relative to the norm, for the parameter where the difference is largest, on
  one rank or on two. In brackets: the same for PyTorch in float32.
- **loss**: PyTorch's first and tenth with SGD on one rank.
- **SGD, AdamW**: the largest relative difference among the first ten losses. SGD has the momentum
  {pt2_runs.MOMENTUM}; there is no weight decay; the record has the learning rates. On two ranks each rank normalises its half of
  the batch by itself, and PyTorch did the same.
- **Tolerance** of a loss: {number(pt2_runs.TOLERANCE)}. Where a difference is larger, the brackets have that of PyTorch in float32, and
  up to {ALLOWED} times that is allowed: batch norms over a few values amplify errors of rounding. PyTorch computes
  with the rows of the batch in four orders, which round in four ways; the largest difference counts.
- **Dropout** and stochastic depth have the probability 0 here. `make test` compares the mean and the deviation of
  a loss with both.

{table(head, map(row, compared))}

The first ones, without a library, are written by hand: [pt2_models.py](../../tests/parity/pt2_models.py). The others
are made by [pt2_networks.py](../../tests/parity/pt2_networks.py).

## Refused

The message is that of millrace, without the name of the file.

{table(["network", "message"], why)}
"""


def text():
    return page(json.loads(RECORDED.read_text()))


def write():
    PAGE.write_text(text())


def main():
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text() != text():
            sys.exit(f"FAILED: {PAGE.name} is not what {RECORDED.name} says. renew it: tests/parity/pt2_page.py")
    else:
        write()


if __name__ == "__main__":
    main()
