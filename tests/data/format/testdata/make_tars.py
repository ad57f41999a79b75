#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tars as other programs do: webdataset's TarWriter (pip install webdataset), Python's tarfile in its
three formats, GNU tar and bsdtar. All are gzipped, for a tar is mostly zeros; the test unpacks them."""
import gzip
import io
import os
import pathlib
import subprocess
import tarfile
import tempfile

import webdataset

HERE = pathlib.Path(__file__).parent
SAMPLES = [
    ("a/000", {"cls": b"0", "jpg": b"\xff\xd8jpeg 0" * 100}),
    ("a/001", {"cls": b"1", "jpg": b"\xff\xd8jpeg 1" * 200}),
    ("d" * 60 + "/" + "n" * 90, {"json": b"{}"}),
    ("e" * 40 + "/" + "l" * 134, {"txt": b"long"}),
    ("gr\u00fc\u00dfe", {"txt": b"utf-8"}),
]


def keep(name, data):
    with open(HERE / f"{name}.tar.gz", "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
        out.write(data)


def files():
    return [(f"{key}.{ext}", data) for key, fields in SAMPLES for ext, data in sorted(fields.items())]


with tempfile.TemporaryDirectory() as temporary:
    os.chdir(temporary)
    with webdataset.TarWriter("w.tar") as writer:
        for key, fields in SAMPLES:
            writer.write({"__key__": key, **fields})
    keep("webdataset", open("w.tar", "rb").read())

    for name, form in (("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
        with tarfile.open("p.tar", "w", format=form) as tar:
            for path, data in files():
                info = tarfile.TarInfo(path)
                info.size, info.mtime = len(data), 1234567890.5 if name == "pax" else 1234567890
                tar.addfile(info, io.BytesIO(data))
        keep(f"python_{name}", open("p.tar", "rb").read())

    for path, data in files():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "wb") as out:
            out.write(data)
    names = [path for path, _ in files()]
    owner = ["--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"]
    for form in ("gnu", "posix"):
        subprocess.run(["tar", f"--format={form}", *owner, "-cf", "g.tar", *names], check=True)
        keep(f"tar_{form}", open("g.tar", "rb").read())
    for form in ("pax", "gnutar"):
        subprocess.run(["bsdtar", f"--format={form}", "--uid=0", "--gid=0", "-cf", "b.tar", *names], check=True)
        keep(f"bsdtar_{form}", open("b.tar", "rb").read())

    # Duplicates as hard links, and a file with holes.
    os.link("a/000.jpg", "a/002.jpg")
    subprocess.run(["tar", "--format=gnu", *owner, "-cf", "l.tar", "a/000.jpg", "a/001.jpg", "a/002.jpg"], check=True)
    keep("tar_hardlink", open("l.tar", "rb").read())
    with open("holes.bin", "wb") as out:
        out.seek(1 << 20)
        out.write(b"end")
    for form in ("gnu", "posix"):
        subprocess.run(["tar", "--sparse", f"--format={form}", *owner, "-cf", "s.tar", "a/000.jpg", "holes.bin",
                        "a/001.jpg"], check=True)
        keep(f"tar_sparse_{form}", open("s.tar", "rb").read())
