#!/usr/bin/env python3
"""Copies an HDF5 file to many names, to measure how long a run with many shards takes to start.

usage: scripts/many-shards.py FILE.h5 FOLDER COUNT

Writes FOLDER/train-0000000.h5 and so on. If COUNT is above 100 000, the files are in sub-folders of 10 000.
"""
import os
import sys

if len(sys.argv) != 4:
    sys.exit(__doc__)
content = open(sys.argv[1], "rb").read()
count = int(sys.argv[3])
for i in range(count):
    folder = os.path.join(sys.argv[2], f"{i // 10000:05d}") if count > 100000 else sys.argv[2]
    if i % 10000 == 0:
        os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"train-{i:07d}.h5"), "wb") as out:
        out.write(content)
