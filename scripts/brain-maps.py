#!/usr/bin/env python3
# Label maps of a brain, as shards for a U-Net: a magnetic resonance image (Colin27) and, at each voxel, its lobe in the
# AAL atlas. Both are in Debian's package mricron-data; the script needs python3-numpy and python3-h5py.
# Usage: brain-maps.py OUT [TEMPLATES]
#
# The left half of the brain is for training; the right half, mirrored, is for validation. It is one person's brain: the
# halves are alike, and the result says nothing about other people.
#   OUT/slices-{train,valid}.h5   axial slices of 208x80 pixels
#   OUT/boxes-{train,valid}.h5    overlapping boxes of 80x80x80 voxels
import gzip
import pathlib
import struct
import sys

import h5py
import numpy as np

LOBES = ["outside", "frontal", "insula", "limbic", "occipital", "parietal", "subcortical", "temporal", "cerebellum"]


def volume(path):  # of NIfTI-1 with one byte a voxel, as (z, y, x)
    data = gzip.decompress(path.read_bytes())
    extents, kind = struct.unpack_from("<4h", data, 40), struct.unpack_from("<h", data, 70)[0]
    if extents[0] != 3 or kind != 2:
        sys.exit(f"{path} is not one volume of bytes")
    return np.frombuffer(data, np.uint8, offset=int(struct.unpack_from("<f", data, 108)[0])).reshape(extents[:0:-1])


def halves(whole):  # from the middle outwards, without the margin around the brain
    box = whole[4:164, 5:213]
    return {"train": box[:, :, 90:10:-1], "valid": box[:, :, 90:170]}


def boxes(half):
    return np.stack([half[z:z + 80, y:y + 80] for z in range(0, 81, 16) for y in range(0, 129, 16)])


def write(path, x, y):
    with h5py.File(path, "w") as file:
        file["x"], file["y"] = x, y
        file.attrs["classes"] = len(LOBES)
        file.attrs["class_names"] = "\n".join(LOBES)
    print(path, *x.shape)


out = pathlib.Path(sys.argv[1])
templates = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "/usr/share/mricron/templates")
lobe_of = np.zeros(256, np.uint8)
for line in (templates / "aal.nii.txt").read_text().split("\n"):  # "1 Precentral_L 2001": thousands are lobes
    if line.strip():
        number, _, code = line.split()
        lobe_of[int(number)] = int(code) // 1000 - 1
image, lobes = halves(volume(templates / "ch2bet.nii.gz")), halves(lobe_of[volume(templates / "aal.nii.gz")])
out.mkdir(parents=True, exist_ok=True)
for part in image:
    write(out / f"slices-{part}.h5", image[part], lobes[part])
    write(out / f"boxes-{part}.h5", boxes(image[part]), boxes(lobes[part]))
