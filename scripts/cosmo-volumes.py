#!/usr/bin/env python3
# Volumes like those of CosmoFlow, made by formula: inputs/cosmoflow.cfg trains on them. The script needs python3-numpy
# and python3-h5py.
# Usage: cosmo-volumes.py OUT [SIZE [TRAIN [VALID]]]        SIZE 64, a multiple of 32; TRAIN 384 and VALID 64 samples
#
# They are no simulations of the universe: each is a Gaussian random field with the power spectrum k^n exp(-k^2 r^2),
# whose exponential, a density of mean 1, is sampled by Poisson counts, 10 a voxel. The four channels are four times, at
# which the field has grown. The targets, each between -1 and 1, are its strength, the slope n, the length r and the
# speed of growth.
#   OUT/train-0.h5, OUT/valid-0.h5   x (N, SIZE, SIZE, SIZE, 4) uint16, y (N, 4) float32
import pathlib
import sys

import h5py
import numpy as np

MEAN_COUNT, TIMES = 10, 4


def volume(random, wave_numbers, targets):
    strength, slope, length, growth = targets
    k = wave_numbers
    spectrum = np.where(k > 0, np.maximum(k, 1) ** (-1.5 + slope), 0) * np.exp(-(k * (0.10 + 0.05 * length)) ** 2)
    shape = (k.shape[0],) * 3
    axes = (0, 1, 2)
    field = np.fft.irfftn(np.fft.rfftn(random.standard_normal(shape), axes=axes) * np.sqrt(spectrum), shape, axes)
    field /= field.std()
    counts = []
    for time in range(TIMES):
        grown = (0.8 + 0.3 * strength) * (1 - (0.15 + 0.05 * growth) * time) * field
        counts.append(random.poisson(MEAN_COUNT * np.exp(grown - grown.var() / 2)))
    return np.minimum(np.stack(counts, -1), 65535).astype(np.uint16)


def write(path, random, size, rows):
    axis = np.fft.fftfreq(size, 1 / size)
    k = np.sqrt(axis[:, None, None] ** 2 + axis[None, :, None] ** 2 + np.arange(size // 2 + 1)[None, None, :] ** 2)
    targets = random.uniform(-1, 1, (rows, 4)).astype(np.float32)
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (rows, size, size, size, TIMES), np.uint16)
        for row in range(rows):
            x[row] = volume(random, k, targets[row])
        file["y"] = targets
    print(path, rows, *[size] * 3, TIMES)


out = pathlib.Path(sys.argv[1])
size, train, valid = [int(word) for word in sys.argv[2:]] + [64, 384, 64][len(sys.argv) - 2:]
if size % 32:
    sys.exit("SIZE is no multiple of 32: the network halves it five times")
out.mkdir(parents=True, exist_ok=True)
for number, (part, rows) in enumerate((("train", train), ("valid", valid))):
    write(out / f"{part}-0.h5", np.random.default_rng(number), size, rows)
