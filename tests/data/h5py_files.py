"""Writes files with h5py and hdf5plugin, for tests/data/h5py_test.cpp.

usage: h5py_files.py write FOLDER    FOLDER/*.h5, the values of x and y of each as plain bytes, and FOLDER/list.txt
       h5py_files.py read FILE...    compares x and y of shards that `millrace pack` wrote with FOLDER/packed.npz
"""
import os
import sys

import h5py
import hdf5plugin
import numpy as np

rng = np.random.default_rng(5)
ROWS, SAMPLE = 37, (5, 7, 3)
listed = []


def values(dtype, shape=(ROWS,) + SAMPLE):
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.normal(size=shape).round(2).astype(dtype)
    info = np.iinfo(dtype)
    some = rng.integers(info.min, info.max, size=shape, endpoint=True, dtype=dtype.newbyteorder("="))
    return np.where(rng.random(shape) < 0.6, some.dtype.type(3), some).astype(dtype)


def put(folder, name, x, y=None, expect="read", libver=None, userblock=0, y_options=None, make=None, **options):
    y = rng.integers(0, 9, size=len(x)).astype("<i4") if y is None else y
    path = os.path.join(folder, name + ".h5")
    with h5py.File(path, "w", libver=libver, userblock_size=userblock) as f:
        if make:
            make(f, x)
        else:
            f.create_dataset("x", data=x, **options)
        f.create_dataset("y", data=y, **(y_options or {}))
    if userblock:
        with open(path, "r+b") as f:
            f.write(b"a user block" * 20)
    x.astype(x.dtype.newbyteorder("<")).tofile(os.path.join(folder, name + ".x"))
    y.astype("<f4" if y.dtype.kind == "f" else "<i4").tofile(os.path.join(folder, name + ".y"))
    listed.append(f"{name} {expect}")


def filters():
    """name -> options of create_dataset"""
    out = {"plain": {}, "gzip": {"compression": "gzip"}, "lzf": {"compression": "lzf"}, "fletcher32": {"fletcher32": True},
           "shuffle": {"shuffle": True}, "shuffle-gzip": {"shuffle": True, "compression": "gzip"},
           "shuffle-lzf": {"shuffle": True, "compression": "lzf"},
           "shuffle-gzip-fletcher32": {"shuffle": True, "compression": "gzip", "fletcher32": True}}
    if h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
        out["szip-nn"] = {"compression": "szip", "compression_opts": ("nn", 8)}
        out["szip-ec"] = {"compression": "szip", "compression_opts": ("ec", 16)}
    else:
        print("this h5py was built without szip")
    out["lz4"] = dict(hdf5plugin.LZ4())
    out["lz4-blocks"] = dict(hdf5plugin.LZ4(nbytes=64))
    out["zstd"] = dict(hdf5plugin.Zstd(clevel=5))
    out["zstd-fletcher32"] = dict(hdf5plugin.Zstd(), fletcher32=True)
    for codec in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for shuffle in (0, 1, 2):
            out[f"blosc-{codec}-{shuffle}"] = dict(hdf5plugin.Blosc(cname=codec, clevel=5, shuffle=shuffle))
    for codec in ("none", "lz4", "zstd"):
        out[f"bitshuffle-{codec}"] = dict(hdf5plugin.Bitshuffle(cname=codec))
    out["bitshuffle-small"] = dict(hdf5plugin.Bitshuffle(nelems=8, cname="lz4"))
    return out


def write(folder):
    os.makedirs(folder, exist_ok=True)
    types = ["<u1", "<i1", "<i2", ">i2", "<u2", ">u2", "<i4", ">i4", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]
    for dtype in types:
        name = ("big-" if dtype[0] == ">" else "") + dtype[1:]
        for user in (0, 512, 4096):
            put(folder, f"contiguous-{name}-{user}", values(dtype), userblock=user)
        for label, options in filters().items():
            if label.startswith("szip") and dtype[1:] == "f2":
                continue  # libaec supports 16-bit words, but h5py refuses them
            # Chunks of complete rows, of parts of rows with edges, and of one row.
            for number, chunk in enumerate([(4,) + SAMPLE, (5, 2, 3, 3), (1,) + SAMPLE]):
                put(folder, f"{label}-{name}-{number}", values(dtype), userblock=512 * (number == 2), chunks=chunk, **options)
    # The ways in which a file lists its chunks. The newest format of h5py's HDF5 may be newer than the HDF5 that millrace was built with.
    for libver in ("earliest", "v110", "latest"):
        expect = "newer" if libver == "latest" else "read"
        for label, grows in {"fixed": None, "one": (None,) + SAMPLE, "two": (None, 5, None, 3)}.items():
            put(folder, f"index-{libver}-{label}", values("<i2"), expect=expect, libver=libver, maxshape=grows, chunks=(4,) + SAMPLE,
                compression="gzip")
            put(folder, f"index-{libver}-{label}-plain", values("<f4"), expect=expect, libver=libver, maxshape=grows, chunks=(3, 5, 7, 2))
        put(folder, f"index-{libver}-single", values("<i2"), expect=expect, libver=libver, chunks=(ROWS,) + SAMPLE, compression="lzf")
        put(folder, f"index-{libver}-many", values("<u1", (700, 3)), expect=expect, libver=libver, chunks=(1, 2))

    def partly(f, x):
        d = f.create_dataset("x", shape=x.shape, dtype=x.dtype, chunks=(4,) + SAMPLE, fillvalue=7, compression="gzip")
        d[5:9] = x[5:9]
    x = values("<i2")
    x[:5], x[9:] = 7, 7
    put(folder, "never-written-chunks", x, make=partly)

    def resized(f, x):
        d = f.create_dataset("x", shape=(60,) + SAMPLE, dtype=x.dtype, chunks=(4,) + SAMPLE, maxshape=(None,) + SAMPLE)
        d[:ROWS] = x
        d.resize(ROWS, axis=0)
    put(folder, "resized", values("<f4"), make=resized)
    # Labels and targets in each type and layout.
    for dtype in ("<u1", ">i2", "<i8", ">i8"):
        put(folder, f"labels-{dtype[1:]}-{dtype[0] == '>'}", values("<u1"), y=rng.integers(0, 9, size=ROWS).astype(dtype),
            y_options={"chunks": (8,), "compression": "gzip", "shuffle": True})
    for dtype in ("<f4", ">f4", "<f8"):
        put(folder, f"targets-{dtype[1:]}-{dtype[0] == '>'}", values("<u1"), y=values(dtype, (ROWS, 3)),
            y_options=dict(hdf5plugin.Blosc(), chunks=(8, 2)))
    # Only the HDF5 library can read these.
    put(folder, "scaleoffset", values("<i2"), chunks=(4,) + SAMPLE, scaleoffset=0)

    def compact(f, x):
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(x.shape)
        h5py.h5d.create(f.id, b"x", h5py.h5t.py_create(x.dtype), space, plist).write(h5py.h5s.ALL, h5py.h5s.ALL, x)
    put(folder, "compact", values("<u1"), make=compact)
    # millrace cannot read these.
    put(folder, "blosc2", values("<i2"), expect="refuse", chunks=(4,) + SAMPLE, **hdf5plugin.Blosc2())
    put(folder, "zfp", values("<f4"), expect="refuse", chunks=(4, 5, 7, 3), **hdf5plugin.Zfp(reversible=True))
    put(folder, "complex", values("<f4").astype("<c8"), expect="refuse")
    with open(os.path.join(folder, "list.txt"), "w") as f:
        f.write("\n".join(listed) + "\n")
    x, y = values("<i2", (300, 16)), rng.integers(0, 5, size=300).astype("<i8")
    np.savez(os.path.join(folder, "packed.npz"), x=x, y=y)
    print(f"{len(listed)} files by h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}, hdf5plugin {hdf5plugin.version}")


def read(paths):
    source = np.load(os.path.join(os.path.dirname(paths[0]), "..", "packed.npz"))
    with h5py.File(paths[0]) as f:
        x, y = f["x"][:], f["y"][:]
        if not (np.array_equal(x, source["x"]) and np.array_equal(y.ravel(), source["y"])):
            sys.exit(f"{paths[0]} differs from what was packed")
        print(paths[0], "is as packed:", f["x"].chunks, [f["x"].id.get_create_plist().get_filter(i)[3]
              for i in range(f["x"].id.get_create_plist().get_nfilters())])


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    write(sys.argv[2]) if sys.argv[1] == "write" else read(sys.argv[2:])
