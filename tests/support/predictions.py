"""Data and expectations of tests/app/predict_test.sh, in the current folder.

usage: predictions.py write_CASE|check_CASE
"""

import re
import sys

import h5py
import numpy as np


def write_unlabelled():
    r = np.random.default_rng(1)
    a, b = r.normal(size=(150, 6, 5)).astype("f4"), r.normal(size=(150, 4)).astype("f4")
    y = (a[:, 0, 0] + b[:, 0] > 0).astype("u1")
    for name, rows in ("whole", slice(0, 150)), ("first", slice(0, 41)), ("second", slice(41, 150)):
        with h5py.File(name + ".h5", "w") as f:
            f["a"], f["b"] = a[rows], b[rows]
            if name == "whole": f["y"] = y


def write_regression():
    r = np.random.default_rng(1)
    x = r.normal(size=(200, 6)).astype("f4")
    with h5py.File("targets.h5", "w") as f:
        f["x"], f["y"] = x, 40 + 7 * x[:, :2] + x[:, 2:3]
    with h5py.File("one.h5", "w") as f:
        f["x"], f["y"] = x, x[:, 0] - x[:, 1]
    t = np.arange(400)
    with h5py.File("series.h5", "w") as f:
        f["x"] = (500 + 30 * np.sin(0.3 * t) + r.normal(size=400)).astype("f4")[:, None]


def write_losses():
    x = np.random.default_rng(1).normal(size=(120, 6)).astype("f4")
    for name in "whole", "x":
        with h5py.File(name + ".h5", "w") as f:
            f["x"] = x
            if name == "whole":
                f["kind"], f["energy"] = (x[:, 0] > 0) + 2 * (x[:, 1] > 0), x[:, 2:4] * 3


def write_masks():
    r = np.random.default_rng(1)
    for name, shape in ("images", (60, 8, 12, 3)), ("volumes", (40, 6, 8, 5)):
        x = r.normal(size=shape).astype("f4")
        y = 1 * (x[..., 0] > 0) + (x[..., 1] > 1) if name == "images" else x > 0
        for end in "", "-x":
            with h5py.File(f"{name}{end}.h5", "w") as f:
                f["x"] = x
                if not end: f["y"] = y.astype("u1")


def check_classes():
    on = [h5py.File(f"on{r}.h5") for r in (1, 2, 3)]
    files = [h5py.File("set/train-00000.h5"), h5py.File("valid.h5")]
    y = np.concatenate([f["y"][:].ravel() for f in files])
    valid = len(files[1]["y"])
    classes, p = on[0]["prediction"][:], on[0]["probabilities"][:]
    assert on[0].attrs["format"] == b"millrace-predictions-1" and on[0].attrs["step"] > 0, dict(on[0].attrs)
    assert classes.shape == (240,) and classes.dtype == np.int32 and p.shape == (240, 3) and p.dtype == np.float32
    for other in on[1:]:
        assert (other["prediction"][:] == classes).all() and np.allclose(other["probabilities"][:], p, atol=1e-6)
    assert np.allclose(p.sum(1), 1, atol=1e-5) and (p.argmax(1) == classes).all()
    accuracy = 100 * (classes == y)[-valid:].mean()
    assert f"top-1 {accuracy:.2f} %" in open("eval").read(), accuracy
    loss = -np.log(p[np.arange(240), y])[-valid:].mean()
    assert abs(loss - float(re.search(r"loss ([0-9.]+)", open("eval").read())[1])) < 1e-3, loss
    assert (classes == y).mean() > 0.6, "it has learned something"
    top = h5py.File("top.h5")
    assert list(top) == ["top_classes", "top_probabilities"], list(top)
    assert (top["top_classes"][:, 0] == classes[-valid:]).all()
    assert np.allclose(top["top_probabilities"][:], -np.sort(-p[-valid:], 1)[:, :2], atol=1e-6)


def check_unlabelled():
    whole, parts = h5py.File("whole-y.h5"), h5py.File("parts.h5")
    assert np.allclose(whole["probabilities"][:], parts["probabilities"][:], atol=1e-5)
    assert np.ptp(whole["probabilities"][:, 0]) > 0.1, "the predictions differ from sample to sample"
    y = h5py.File("whole.h5")["y"][:]
    assert (parts["prediction"][:] == y).mean() > 0.7, (parts["prediction"][:] == y).mean()


def check_binary():
    f, y = h5py.File("binary.h5"), h5py.File("whole.h5")["y"][:]
    assert f["prediction"].shape == f["probabilities"].shape == (150,)
    assert ((f["probabilities"][:] >= 0.5) == f["prediction"][:]).all()
    assert f"accuracy {100 * (f['prediction'][:] == y).mean():.2f} %" in open("eval").read()


def check_regression():
    def metric(name, which):
        return float(re.search(rf"{which} ([-0-9.e]+)", open(f"{name}.eval").read())[1])
    for name, shape in ("targets", (200, 2)), ("one", (200,)):
        p, y = h5py.File(f"p-{name}.h5")["prediction"][:], h5py.File(f"{name}.h5")["y"][:]
        assert p.shape == shape and p.dtype == np.float32
        mae = np.abs(p - y).mean()
        assert abs(mae / metric(name, "MAE") - 1) < 2e-3, (name, mae, metric(name, "MAE"))
    p, x = h5py.File("p-series.h5")["prediction"][:], h5py.File("series.h5")["x"][:]
    assert p.shape == (398,), p.shape  # one value a row, as in files of (T) values
    p = p[:, None]
    r2 = 1 - ((p - x[2:]) ** 2).sum() / ((x[2:] - x[2:].mean()) ** 2).sum()
    assert abs(r2 - metric("series", "R2")) < 1e-3 and r2 > 0.3, r2
    assert 460 < p.mean() < 540, "in the unit of the series"
    scaled = h5py.File("p-scaled.h5")["prediction"][:][:, None]
    assert ((scaled - x[2:]) ** 2).sum() < 1.2 * ((p - x[2:]) ** 2).sum(), "from log1p(x / 2 + 3)"


def check_losses():
    f, whole, text = h5py.File("p.h5"), h5py.File("whole.h5"), open("eval").read()
    assert list(f) == ["energy", "kind"] and list(f["kind"]) == ["prediction", "probabilities"] and list(f["energy"]) == ["prediction"]
    assert f"accuracy {100 * (f['kind/prediction'][:] == whole['kind'][:]).mean():.2f} %" in text
    loss = ((f["energy/prediction"][:] - whole["energy"][:]) ** 2).mean()
    assert abs(loss / float(re.search(r"energy: loss ([0-9.]+)", text)[1]) - 1) < 2e-3, loss


def check_masks():
    for name in "images", "volumes":
        one, two, y = h5py.File(f"one-{name}.h5"), h5py.File(f"two-{name}.h5"), h5py.File(f"{name}.h5")["y"][:]
        assert list(one) == ["mask"] and list(two) == ["mask", "probabilities"]
        mask, p = one["mask"][:], two["probabilities"][:]
        assert mask.shape == y.shape and mask.dtype == np.uint8 and p.shape == y.shape + (y.max() + 1,)
        assert (two["mask"][:] != mask).mean() < 1e-3 and (p.argmax(-1) == two["mask"][:]).all()
        accuracy = 100 * (mask == y).mean()
        assert f"top-1 {accuracy:.2f} %" in open(f"{name}.eval").read(), accuracy
        assert accuracy > 75, accuracy


def check_features():
    f = {l: h5py.File(l + ".h5")["features"][:] for l in ("conv1", "batchnorm1", "relu1", "globalpool1", "linear1", "half")}
    assert f["conv1"].shape == f["relu1"].shape == (37, 32, 32, 8) and f["linear1"].shape == (37, 4)
    assert np.allclose(f["relu1"], np.maximum(f["batchnorm1"], 0), atol=1e-5) and f["batchnorm1"].min() < 0
    assert np.array_equal(h5py.File("exported.h5")["features"][:], f["relu1"])
    pooled = f["globalpool1"].reshape(37, 8)
    assert np.allclose(pooled, f["relu1"].mean((1, 2)), atol=1e-4)
    e = np.exp(f["linear1"].astype("f8"))
    assert np.allclose(e / e.sum(1, keepdims=True), h5py.File("p.h5")["probabilities"][:], atol=1e-5)
    assert np.allclose(f["half"], f["linear1"], atol=0.05) and not np.array_equal(f["half"], f["linear1"])


globals()[sys.argv[1]]()
