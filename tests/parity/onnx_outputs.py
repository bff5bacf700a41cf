#!/usr/bin/env python3
"""ONNX files of millrace's networks: onnxruntime computes what `millrace predict` writes.

    python3 tests/parity/onnx_outputs.py MILLRACE [NAME...]        needs onnx, onnxruntime, h5py, torch and safetensors

    python3 tests/parity/onnx_outputs.py --record FOLDER FILE

The same for the files that tests/onnx/onnx_model_test.cpp has written into the folder. Writes the results to the file,
which is tests/parity/recorded/onnx.json.

Each network is trained for two steps, so that its running statistics and averages are not the initial ones. Errors are
the largest difference of a result, relative to the largest result. For networks of PyTorch, the copy of the archive with
the trained weights (--format pt2) is compared with the weights of --format safetensors, and its network with both.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import h5py
import numpy
import onnx
import onnxruntime
import safetensors.torch
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parent))
ROOT = pathlib.Path(__file__).parent.parent.parent
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
ROWS, TOLERANCE = 12, 1e-5
TOKENS = "--data.sample tokens --data.window 24 --data.token_labels every --data.vocabulary 40"
ATTENTION = ("linear 64 axis=last", "attention heads=2 key_heads=1 causal rotary=100", "linear 24 axis=last")

# Keys, extents of a sample (channels last; one: tokens), labels.
CASES = {
    "mlp": ("--model.name mlp --model.hidden 24 16 --model.activation tanh", (9, 7, 3), "class"),
    "features": ("--model.name mlp --model.hidden 16 --model.activation elu", (11,), "targets"),
    "resnet20": ("--model.name resnet --model.depth 20", (16, 18, 3), "class"),
    "resnet18": ("--model.name resnet --model.depth 18 --model.stem imagenet --optim.ema 0.5", (64, 64, 3), "class"),
    "resnet50": ("--model.name resnet --model.depth 50 --model.stem imagenet", (64, 64, 3), "class"),
    "vit": ("--model.name vit", (64, 48, 3), "class"),
    "convnext": ("--model.name convnext", (64, 64, 3), "class"),
    "unet": ("--model.name unet --model.width 8", (32, 48, 3), "pixel"),
    "unet_transposed": ("--model.name unet --model.width 8 --model.upsample transposed", (32, 32, 3), "pixel"),
    "unet_volume": ("--model.name unet --model.width 4 --data.subvolume 16 16 8", (20, 16, 9, 2), "pixel"),
    "unet_signal": ("--model.name unet --model.width 8 --data.layout channels_last", (64, 2), "pixel"),
    "cosmoflow": ("--model.name cosmoflow --model.width 8 --data.transform log1p --data.scale 1", (32, 32, 32, 2), "targets"),
    "hyperspectral": ("--model.name hyperspectral --data.channels 0-12 15", (9, 9, 20), "class"),
    "gpt2": ("--model.name gpt2", (24,), "tokens"),
    "llama": ("--model.name llama", (24,), "tokens"),
    "documents": ("--model.name llama --model.separator 7", (24,), "tokens"),
    "signal": (["conv 12 5 pad=2 bias=on", "groupnorm 3", "hardswish", "avgpool 2", "conv 12 3 pad=same groups=12 as=skip",
                "layernorm", "relu6", "se 4", "upsample 2", "slice 1 30 axis=0", "convt 6 4 stride=2 pad=1 bias=on",
                "instancenorm", "leaky_relu", "maxpool 3 stride=2 pad=1", "linear outputs"], (64, 3), "class"),
    "image": (["conv 12 3x5 stride=2 pad=1 dilation=2 as=a", "batchnorm", "gelu", "conv 12 3 pad=same", "scale init=0.7",
               "add a", "hardsigmoid", "concat a", "reshape 18x8x12", "silu", "avgpool 3 stride=2 pad=1", "gelu_tanh",
               "conv 16 1 as=b", "glu silu", "globalpool", "sigmoid", "linear outputs"], (20, 21, 3), "class"),
    "sequence": (["conv 24 4 stride=4 bias=on", "positions class_token=on", "residual {", "rmsnorm", *ATTENTION, "}",
                  "linear 20 axis=last", "rmsnorm", "slice 0 3 axis=0", "linear outputs"], (16, 16, 2), "class"),
    "recurrent": (["lstm 12 layers=2 bidirectional", "gru 10 bidirectional", "gru 8 bias=off", "slice 15 1 axis=0", "linear outputs"],
                  (16, 3), "class"),
    "text_lstm": (["embedding 12", "lstm 16 layers=2 dropout=0.1", "linear outputs axis=last"], (24,), "tokens"),
    "tied": (["embedding 24 as=table", "positions", "layernorm", "linear outputs axis=last bias=off weights=table"], (24,), "tokens"),
    "normalized": ("--model.name mlp --model.hidden 8 --data.normalize_targets on", (6,), "targets"),
    "binary": ("--model.name mlp --model.hidden 8 --model.loss binary_cross_entropy", (6,), "binary"),
    "pair": ("--model.name mlp --model.hidden 16 --data.sample pair --data.layout channels_last --data.transform log1p --data.scale 0.5", (4, 3), "pair"),
    "inputs": (["input image", "conv 8 3", "relu", "globalpool as=seen", "input weather", "linear 8", "concat seen", "tanh as=h",
                "linear 5", "loss cross_entropy y=kind", "linear 2 from=h", "loss mse y=rain weight=0.5"], None, "inputs"),
    "pt2_mlp": ("mlp", (5, 4, 1), "class"),
    "pt2_cnn": ("cnn", (12, 14, 3), "class"),
    "pt2_squeeze": ("squeeze", (8, 10, 3), "class"),
    "pt2_unet": ("unet", (8, 12, 3), "pixel"),
    "pt2_signallstm": ("signallstm", (10, 3), "class"), "pt2_signalgru": ("signalgru", (9, 3), "class"),
    "pt2_textgru": ("textgru", (8,), "tokens"), "pt2_signalcells": ("recurrent/signalcells", (7, 3), "class"),
    "pt2_signalrnn": ("recurrent/signalrnn", (6, 3), "class"), "pt2_textrnn": ("recurrent/textrnn", (9,), "tokens"),
    "pt2_vit": ("vit", (12, 16, 3), "class"),
    "pt2_convnext": ("convnext", (12, 8, 3), "class"),
    "pt2_volume": ("volume", (8, 6, 4, 2), "class"),
    "pt2_random": ("random", (8, 6, 3), "class"),
    "pt2_gpt": ("gpt", (12,), "tokens"),
    "pt2_shuffle": ("shuffle", (12, 11, 3), "class"),
    "pt2_mixer": ("mixer", (8, 12, 3), "class"),
    "pt2_swin": ("swin", (12, 8, 3), "class"),
    "pt2_written": ("written", (10,), "tokens"),
    "pt2_deit": ("deit", (8, 12, 3), "class"),
    "pt2_response": ("response", (8, 12, 3), "class"),
    "pt2_channels": ("channels", (8, 6, 3), "class"),
    "pt2_slopes": ("slopes", (8, 10, 3), "class"),
    "pt2_einsum": ("einsum", (8, 6, 3), "class"),
    "pt2_depth": ("depth", (8, 6, 3), "class"),
}


def run(*words, cwd):
    done = subprocess.run([MILLRACE, *map(str, words)], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout


def write_data(path, sample, labels):
    random = numpy.random.default_rng(1)
    with h5py.File(path, "w") as file:
        if labels == "tokens":
            tokens = random.integers(0, 30, (ROWS, sample[0] + 1), dtype=numpy.uint8)
            file["x"] = tokens
            return {"tokens": tokens[:, :-1].astype(numpy.int64)}, tokens[:, 1:].astype(numpy.int64)
        if labels == "inputs":
            file["image"] = random.integers(0, 256, (ROWS, 10, 9, 3), dtype=numpy.uint8)
            file["weather"] = random.standard_normal((ROWS, 5), dtype=numpy.float32)
            file["kind"] = random.integers(0, 5, ROWS, dtype=numpy.int32)
            file["rain"] = random.standard_normal((ROWS, 2), dtype=numpy.float32)
            return {name: first(file[name][:].astype(numpy.float32)) for name in ("image", "weather")}, None
        if labels == "pair":
            x = random.uniform(0, 9, (ROWS, *sample)).astype(numpy.float32)
        else:
            x = random.integers(0, 256, (ROWS, *sample), dtype=numpy.uint8)
        file["x"] = x
        if labels == "class":
            file["y"] = random.integers(0, 5, ROWS, dtype=numpy.int32)
        elif labels == "binary":
            file["y"] = random.integers(0, 2, (ROWS, 3)).astype(numpy.float32)
        elif labels == "targets":
            file["y"] = 5 + random.standard_normal((ROWS, 3), dtype=numpy.float32)
        elif labels == "pixel":
            file["y"] = random.integers(0, 4, (ROWS, *sample[:-1]), dtype=numpy.int32)
        file.attrs["classes"] = {"class": 5, "pixel": 4}.get(labels, 0)
        return {"input": first(x.astype(numpy.float32))}, None


def first(x):
    return numpy.moveaxis(x, -1, 1) if x.ndim > 2 else x


def last(x):
    return numpy.moveaxis(x, 1, -1) if x.ndim > 2 else x


def keys_of(name, folder):
    words, sample, labels = CASES[name]
    keys = ["--data.train", "data.h5", "--data.valid", "data.h5"]
    if name.startswith("pt2_"):
        (folder / "net.pt2").write_bytes((ROOT / "tests/fixtures/pt2" / f"{words}.pt2").read_bytes())
        keys += ["--data.layout", "channels_last"] if len(sample) == 2 else []
        keys += ["--model.name", "pt2", "--model.file", "net.pt2"]
    elif isinstance(words, list):
        keys += ["--data.layout", "channels_last"] if sample and len(sample) == 2 else []
        keys += ["--model.name", "layers", *(part for line in words for part in ("--model.layers", line))]
    else:
        keys += words.split()
    if labels == "tokens":
        keys += TOKENS.replace("24", str(sample[0])).replace("40", "30" if name in ("pt2_written", "pt2_textgru", "pt2_textrnn") else "40").split()
    if labels == "inputs":
        keys += ["--data.x", "image, weather", "--data.y", "kind, rain"]
    return keys


def relative(ours, theirs):
    return float(numpy.abs(ours - theirs).max() / numpy.abs(theirs).max())


def results_of(folder, output, model):
    """What millrace predict writes of the value that an output of the ONNX file stands for."""
    prefix, _, kind = output.rpartition("/")
    path = folder / "predicted.h5"
    path.unlink(missing_ok=True)
    if kind == "prediction":
        run("predict", "run", "--data.valid", "data.h5", "--output", path, cwd=folder)
        with h5py.File(path) as file:
            return file[output][:]
    function = json.loads(model["millrace.model"])["function"]
    loss = next(line for line in function if line.startswith((prefix or "loss") + " = "))
    layer = re.search(r"\(([^,)]+)", loss).group(1)
    run("predict", "run", "--data.valid", "data.h5", "--features", layer, "--output", path, cwd=folder)
    with h5py.File(path) as file:
        return file["features"][:]


def loss_of(logits, labels):
    return F.cross_entropy(torch.from_numpy(logits).double().flatten(0, 1), torch.from_numpy(labels).flatten()).item()


def outputs_of(name, folder):
    """The results of onnxruntime by output, and the largest error of them."""
    inputs, labels = write_data(folder / "data.h5", *CASES[name][1:])
    run("train", "-c", "/dev/null", "--run.dir", "run", "--run.device", "cpu", "--train.steps", "2", "--optim.lr", "0.01",
        "--optim.schedule", "constant", "--train.global_batch", ROWS // 2, *keys_of(name, folder), cwd=folder)
    run("export", "run", "--format", "onnx", cwd=folder)
    path = folder / "run" / "model.onnx"
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    results = dict(zip(names, session.run(names, inputs)))
    one = dict(zip(names, session.run(names, {key: value[:1] for key, value in inputs.items()})))
    error = max(relative(one[key], results[key][:1]) for key in names)  # the number of samples is free
    if labels is not None:
        expected = json.loads((folder / "run" / "summary.json").read_text())["valid_loss"]
        return results, max(error, abs(loss_of(results[names[0]], labels) - expected) / expected)
    for key, value in results.items():
        expected = results_of(folder, key, metadata)
        value = last(value) if key.endswith("logits") else value
        value = value[:len(expected)]  # pairs: the last samples are targets alone
        error = max(error, relative(value.reshape(expected.shape), expected))
    return results, error


def check_archive(name, folder, results):
    """--format pt2: the weights are those of --format safetensors; PyTorch computes with them what onnxruntime does."""
    import pt2_models
    import pt2_more
    import pt2_recurrent

    torch.set_default_dtype(torch.float32)  # the modules above change it
    run("export", "run", "--format", "pt2", cwd=folder)
    run("export", "run", cwd=folder)
    program = torch.export.load(folder / "run" / "model.pt2")
    state = program.state_dict
    expected = safetensors.torch.load_file(folder / "run" / "model.safetensors")
    for key, value in state.items():
        if not torch.equal(value, expected[key]):
            sys.exit(f"{name}: {key} differs from --format safetensors")
    cases = pt2_models.CASES + pt2_more.CASES + pt2_recurrent.CASES
    make = next(case[0] for case in cases if case[0].__name__.lower() == CASES[name][0].split("/")[-1])
    network = make().float()
    network.load_state_dict(state, strict=True)
    with h5py.File(folder / "data.h5") as file:
        x = file["x"][:]
    if CASES[name][2] == "tokens":
        x = torch.from_numpy(x[:, :-1].astype(numpy.int64))
    else:  # as data.scale and data.normalize make it
        values = json.loads(onnx_metadata(folder)["millrace.model"])["values"]
        x = x * values["scale"] + values["offset"]
        x = (x - numpy.array(values["mean"])) / numpy.array(values["std"]) if values["mean"] else x
        x = torch.from_numpy(first(x)).float()
    with torch.no_grad():
        errors = [relative(network.eval()(x).numpy(), results["logits"])]
        random = hasattr(network, "drop") or any(isinstance(m, torch.nn.BatchNorm2d) for m in network.modules())
        if not random:
            errors.append(relative(program.module()(x).numpy(), results["logits"]))  # it is the network of training
    return max(errors)


def onnx_metadata(folder):
    return {entry.key: entry.value for entry in onnx.load(folder / "run" / "model.onnx").metadata_props}


def record(folder, out):
    """What onnxruntime computes with the files of the test, for the batches of the formula that all tests share."""
    from networks import digest
    from weights import integers

    cases = {}
    for path in sorted(folder.glob("*.onnx")):
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        entry = model.graph.input[0]
        extents = [d.dim_value for d in entry.type.tensor_type.shape.dim][1:]
        tokens = entry.name == "tokens"
        x = integers(f"{path.stem} x", [3] + (extents if tokens else extents[1:] + extents[:1]), 5 if tokens else 256)
        x = x.numpy() if tokens else first(x.numpy().astype(numpy.float32))
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        logits = session.run(["logits"], {entry.name: numpy.ascontiguousarray(x)})[0].astype(numpy.float64)
        cases[path.stem] = {
            "fingerprint": int(next(p.value for p in model.metadata_props if p.key == "fingerprint")),
            "logits": digest("logits", torch.from_numpy(last(logits) if logits.ndim > 3 else logits))}
    lines = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    out.write_text(f'{{"onnxruntime": "{onnxruntime.__version__}", "cases": {{\n  {lines}\n}}}}\n')


def main():
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float32)
    print(f"{'largest relative error':<24} onnxruntime {onnxruntime.__version__}", flush=True)
    fits = True
    for name in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            results, error = outputs_of(name, folder)
            text = f"{name:<24} {error:.1e}"
            if name.startswith("pt2_"):
                archive = check_archive(name, folder, results)
                text += f"   --format pt2 in PyTorch {archive:.1e}"
                error = max(error, archive)
        print(text, flush=True)
        fits = fits and error < TOLERANCE
    sys.exit(0 if fits else f"the results differ by more than {TOLERANCE:g}")


if __name__ == "__main__":
    if sys.argv[1] == "--record":
        record(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    else:
        MILLRACE = str(pathlib.Path(sys.argv[1]).resolve())
        main()
