#!/usr/bin/env python3
"""Weights go from millrace to torchvision, timm and transformers and back: both compute the same validation loss.

    python3 tests/parity/exchanged.py MILLRACE        needs torch, torchvision, timm, transformers, safetensors and h5py
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import h5py
import numpy
import safetensors.torch
import timm
import torch
import torch.nn.functional as F
import torchvision
import transformers

MILLRACE = str(pathlib.Path(sys.argv[1]).resolve())
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
ROWS, CLASSES, WINDOW = 8, 10, 32
TOLERANCE = 2e-6  # relative, of the loss: float32 against float64


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=65, n_positions=WINDOW, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=65, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=0))


# name: the keys of millrace, the network of the library, side of the images (0: tokens)
CASES = {
    "resnet18": ("resnet --model.depth 18 --model.stem imagenet", torchvision.models.resnet18, 64),
    "resnet50": ("resnet --model.depth 50 --model.stem imagenet", torchvision.models.resnet50, 64),
    "vit": ("vit", lambda num_classes: timm.create_model("vit_tiny_patch16_224", num_classes=num_classes), 224),
    "convnext": ("convnext", lambda num_classes: timm.create_model("convnext_tiny", num_classes=num_classes), 64),
    "gpt2": ("gpt2", gpt2, 0),
    "llama": ("llama", llama, 0),
}


def run(*words):
    done = subprocess.run([MILLRACE, *words], env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")


def write_data(path, side):
    random = numpy.random.default_rng(1)
    with h5py.File(path, "w") as file:
        if side:
            file["x"] = random.standard_normal((ROWS, 3, side, side), dtype=numpy.float32)
            file["y"] = random.integers(0, CLASSES, ROWS, dtype=numpy.int64)
            file.attrs["classes"] = CLASSES
        else:
            file["x"] = random.integers(0, 65, (ROWS, WINDOW + 1), dtype=numpy.uint8)


def loss_of(net, path, side):
    net = net.eval().double()
    with h5py.File(path) as file, torch.no_grad():
        x = torch.from_numpy(file["x"][:])
        if side:
            return F.cross_entropy(net(x.double()), torch.from_numpy(file["y"][:])).item()
        logits = net(x[:, :-1].long()).logits
        return F.cross_entropy(logits.flatten(0, 1), x[:, 1:].long().flatten()).item()


def train(folder, keys, *more):
    """The validation loss after one step of training."""
    run("train", "-c", "/dev/null", "--run.dir", str(folder), "--model.name", *keys, "--train.steps", "1", "--optim.schedule", "constant",
        "--run.device", "cpu", "--train.global_batch", str(ROWS), *more)
    return json.loads((folder / "summary.json").read_text())["valid_loss"]


def compare(what, ours, theirs):
    error = abs(ours - theirs) / theirs
    print(f"{what:<34} {ours:.8f} {theirs:.8f}   {error:.1e}", flush=True)
    return error < TOLERANCE


def exchanged(name, folder):
    words, make, side = CASES[name]
    data = folder / "data.h5"
    write_data(data, side)
    keys = words.split() + ["--data.train", str(data), "--data.valid", str(data)]
    keys += ["--data.layout", "channels_first", "--data.normalize", "off"] if side else [
        "--data.sample", "tokens", "--data.window", str(WINDOW), "--data.token_labels", "every", "--data.vocabulary", "65"]
    arguments = {"num_classes": CLASSES} if side else {}
    torch.manual_seed(1)
    # From millrace: a step changes the weights, and the running statistics of norms.
    ours = train(folder / "first", keys, "--optim.lr", "0.01", "--checkpoint.safetensors", "on")
    net = make(**arguments)
    net.load_state_dict(safetensors.torch.load_file(folder / "first" / "model.safetensors"), strict=True)
    fits = compare(f"{name}: from millrace", ours, loss_of(net, data, side))
    # To millrace: the weights of another network.
    net = make(**arguments).float()
    if side:
        weights = folder / "theirs.safetensors"
        safetensors.torch.save_file(net.state_dict(), weights)
    else:
        weights = folder / "theirs"
        net.save_pretrained(weights)
    frozen = ["--optim.lr", "0", "--optim.weight_decay", "0", "--model.weights", str(weights)]
    if name.startswith("resnet"):  # a step would change the running statistics, so their start is evaluated
        net.train()
        with torch.no_grad():
            net(torch.from_numpy(h5py.File(data)["x"][:]))
    return compare(f"{name}: from Python", train(folder / "second", keys, *frozen), loss_of(net, data, side)) and fits


def main():
    print(f"{'validation loss':<34} millrace   PyTorch {torch.__version__}")
    fits = True
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            fits = exchanged(name, pathlib.Path(folder)) and fits
    sys.exit(0 if fits else "the losses differ")


if __name__ == "__main__":
    main()
