#!/usr/bin/env python3
# Volumes like those of CosmoFlow, made by formula: inputs/cosmoflow.cfg trains on them. The script needs python3-numpy
# and python3-h5py.
# Usage: cosmo-volumes.py OUT [SIZE [TRAIN [VALID]]]        SIZE 64, a multiple of 32; TRAIN 384 and VALID 64 samples
# A folder with other files train-*.h5 or valid-*.h5 is refused.
#
# They are no simulations of the universe: each is a Gaussian random field with the power spectrum k^n exp(-k^2 r^2),
# whose exponential, a density of mean 1, is sampled by Poisson counts, 10 a voxel. The four channels are four times, at
# which the field has grown. The targets, each between -1 and 1, are its strength, the slope n, the length r and the
# speed of growth.
#   OUT/train-0.h5, OUT/valid-0.h5   x (N, SIZE, SIZE, SIZE, 4) uint16, y (N, 4) float32
import argparse
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
    with h5py.File(path, "x") as file:
        x = file.create_dataset("x", (rows, size, size, size, TIMES), np.uint16)
        for row in range(rows):
            x[row] = volume(random, k, targets[row])
        file["y"] = targets
    print(path, rows, *[size] * 3, TIMES)


def extent(word):
    if not word.isdecimal() or int(word) < 32 or int(word) % 32:
        raise argparse.ArgumentTypeError(f"{word} is not 32, 64, 96, ...: the network halves it five times")
    return int(word)


def count(word):
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word} is no number of samples from 1")
    return int(word)


def main():
    parser = argparse.ArgumentParser(description="Writes volumes like those of CosmoFlow, made by formula, into OUT.")
    parser.add_argument("out", metavar="OUT", type=pathlib.Path, help="a folder without train-*.h5 and valid-*.h5")
    parser.add_argument("size", metavar="SIZE", type=extent, nargs="?", default=64, help="a multiple of 32 (64)")
    parser.add_argument("train", metavar="TRAIN", type=count, nargs="?", default=384, help="samples (384)")
    parser.add_argument("valid", metavar="VALID", type=count, nargs="?", default=64, help="samples (64)")
    given = parser.parse_args()
    parts = [(given.out / "train-0.h5", given.train), (given.out / "valid-0.h5", given.valid)]
    for path in sorted(given.out.glob("train-*.h5")) + sorted(given.out.glob("valid-*.h5")):
        sys.exit(f"{path} exists, and would be mixed with the volumes. choose another folder")
    try:
        given.out.mkdir(parents=True, exist_ok=True)
        for number, (path, rows) in enumerate(parts):
            write(path, np.random.default_rng(number), given.size, rows)
    except OSError as error:
        sys.exit(f"{given.out}: the files cannot be written ({error})")


if __name__ == "__main__":
    main()
