#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the files of this directory with the programs that define their formats: generate.py DIR.

Needs numpy, safetensors, zstandard, mosaicml-streaming and litdata (with torch). The values are what
tests/data/format/*_test.cc expect. Compressed files differ between versions of the compressors; what is
in them does not.
"""
import csv
import gzip
import json
import os
import shutil
import struct
import sys

import numpy as np


def numpy_files():
    np.save("f4_2d.npy", np.arange(6, dtype="<f4").reshape(3, 2))
    np.save("i2_big.npy", np.array([[1, -2], [300, -400]], dtype=">i2"))
    np.save("u8_1d.npy", np.array([1, 2, 2**63 - 1], dtype="<u8"))
    np.save("u8_large.npy", np.array([1, 2**63], dtype="<u8"))
    np.save("scalar.npy", np.float64(2.5))
    np.save("empty.npy", np.zeros((0, 4), dtype="i4"))
    np.save("fortran.npy", np.asfortranarray(np.arange(6, dtype="f8").reshape(2, 3)))
    np.save("object.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    np.save("text.npy", np.array(["ab", "c"]))
    np.save("structure.npy", np.zeros(2, dtype=[("a", "i4"), ("b", "f4")]))
    np.save("bool.npy", np.array([True, False, True]))
    np.save("f2_3d.npy", np.arange(8, dtype="<f2").reshape(2, 2, 2))
    for version in (1, 2, 3):
        with open(f"version{version}.npy", "wb") as f:
            np.lib.format.write_array(f, np.arange(3, dtype="i4"), version=(version, 0))
    images = np.arange(12, dtype="u1").reshape(3, 2, 2)
    labels = np.array([7, 8, 9], dtype="i8")
    np.savez("stored.npz", image=images, label=labels)
    np.savez_compressed("deflated.npz", image=images, label=labels)
    np.savez("one.npz", np.arange(4, dtype="f4").reshape(2, 2))
    np.savez("uneven.npz", a=np.zeros(2), b=np.zeros(3))


def idx(code, array):
    header = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def idx_files():
    images = np.arange(12, dtype="u1").reshape(3, 2, 2)
    os.makedirs("mnist", exist_ok=True)
    with gzip.GzipFile("mnist/train-images-idx3-ubyte.gz", "wb", mtime=0) as f:
        f.write(idx(0x08, images))
    with open("mnist/train-labels-idx1-ubyte", "wb") as f:
        f.write(idx(0x08, np.array([7, 8, 9], dtype="u1")))
    with open("floats.idx", "wb") as f:
        f.write(idx(0x0D, np.array([[1.5, -2], [0, 4]], dtype=">f4")))


def safetensors_files():
    from safetensors.numpy import save_file

    save_file({"x": np.arange(6, dtype="<f4").reshape(3, 2), "y": np.array([1, -1, 5], dtype="i8")},
              "rows.safetensors")


def megatron(prefix, documents, dtype, code):
    """The layout of megatron/core/datasets/indexed_dataset.py; a document is a list of sequences."""
    sequences = [s for d in documents for s in d]
    lengths = np.array([len(s) for s in sequences], dtype="<i4")
    ends = np.cumsum([0] + [len(s) * np.dtype(dtype).itemsize for s in sequences])
    borders = np.cumsum([0] + [len(d) for d in documents])
    with open(prefix + ".bin", "wb") as f:
        for s in sequences:
            f.write(np.array(s, dtype=dtype).tobytes())
    with open(prefix + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(sequences), len(borders)))
        f.write(lengths.tobytes() + ends[:-1].astype("<i8").tobytes() + borders.astype("<i8").tobytes())


def token_files():
    os.makedirs("megatron", exist_ok=True)
    megatron("megatron/part0", [[[1, 2, 3]], [[4], [5, 6]], []], "<u2", 8)
    megatron("megatron/part1", [[[70, 80]]], "<u2", 8)
    # llm.c, dev/data/data_common.py: every document begins with the end-of-text token.
    header = np.zeros(256, dtype="<i4")
    tokens = [50256, 11, 12, 50256, 13, 50256, 14, 15, 16]
    header[:3] = [20240520, 1, len(tokens)]
    with open("gpt2.bin", "wb") as f:
        f.write(header.tobytes() + np.array(tokens, dtype="<u2").tobytes())


def mds_files():
    from streaming import MDSWriter

    columns = {"a": "int", "b": "bytes", "s": "str", "u8": "uint8", "i16": "int16", "u64": "uint64",
               "h": "float16", "f": "float32", "d": "float64", "nd": "ndarray", "nt": "ndarray:int32",
               "ns": "ndarray:float32:2,3", "j": "json", "jpg": "jpeg", "png": "png"}

    def sample(i):
        return {"a": i - 2, "b": bytes([i] * i), "s": "\u00e4" * i, "u8": np.uint8(i), "i16": np.int16(-i),
                "u64": np.uint64(i), "h": np.float16(i / 2), "f": np.float32(i / 4), "d": np.float64(i / 8),
                "nd": np.arange(i + 1, dtype="u2").reshape(1, i + 1), "nt": np.full((i + 1,), i, dtype="i4"),
                "ns": np.full((2, 3), i, dtype="f4"), "j": {"i": [i, None]}, "jpg": b"\xff\xd8" + bytes([i]),
                "png": b"\x89PNG" + bytes([i])}

    for name, extra in (("mds_plain", dict(hashes=["sha1", "xxh64"])), ("mds_zstd", dict(compression="zstd:7", hashes=["md5"])),
                        ("mds_gz", dict(compression="gz"))):
        shutil.rmtree(name, ignore_errors=True)
        with MDSWriter(out=name, columns=columns, size_limit=1500, **extra) as out:
            for i in range(7):
                out.write(sample(i))
    shutil.rmtree("mds_pickle", ignore_errors=True)
    with MDSWriter(out="mds_pickle", columns={"p": "pkl"}) as out:
        out.write({"p": [1]})


def litdata_files():
    import torch
    from litdata.streaming.writer import BinaryWriter

    def write(name, items, **extra):
        shutil.rmtree(name, ignore_errors=True)
        writer = BinaryWriter(name, chunk_size=2, **extra)
        for i, item in enumerate(items):
            writer[i] = item
        writer.done()
        writer.merge()

    items = [{"index": i, "text": "t" * i, "x": i / 2, "flag": i % 2 == 0, "raw": bytes([i]),
              "array": np.full((2, i + 1), i, dtype="f4"), "line": np.arange(i + 1, dtype="i8"),
              "tensor": torch.full((1, 2), i, dtype=torch.int32), "vector": torch.arange(i + 1)} for i in range(5)]
    write("litdata", items)
    write("litdata_zstd", items, compression="zstd", compression_level="chunk")
    write("litdata_list", [[i, "b%d" % i] for i in range(3)])


def line_files():
    with open("quoted.csv", "w", newline="") as f:
        out = csv.writer(f)  # the excel dialect: \r\n, quotes doubled
        out.writerow(["name", "text", "n"])
        out.writerow(["plain", "a, b", 1])
        out.writerow(["quotes", 'say "hi"', 2])
        out.writerow(["lines", "one\r\ntwo", 3])
        out.writerow(["", "", ""])
    with open("mixed.jsonl", "w") as f:
        for value in ({"text": "\u00e4\n", "n": 3, "x": 0.5, "b": True, "v": [1, 2], "m": [[1.0], [2.0]], "none": None},
                      {"text": "", "n": -1, "o": {"a": [1]}, "ragged": [1, "x"]}):
            f.write(json.dumps(value) + "\n")


def main():
    os.chdir(sys.argv[1])
    for make in (numpy_files, idx_files, safetensors_files, token_files, mds_files, litdata_files, line_files):
        try:
            make()
        except ImportError as error:
            print(f"{make.__name__}: left out, {error}")


if __name__ == "__main__":
    main()
