#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes images/: files of other programs, each with the pixels that are in it as .raw (height, width, channels).

JPEG by Pillow (libjpeg-turbo), pixels as Pillow decodes them. PNG of every kind by the few lines below, pixels as
they were put in, compared with what Pillow reads. Needs pillow and numpy; written with Pillow 13.0.0.
"""
import io
import pathlib
import struct
import zlib

import numpy
from PIL import Image

OUT = pathlib.Path(__file__).parent / "images"
HEIGHT, WIDTH = 41, 53


def photo(channels, height=HEIGHT, width=WIDTH):
    y, x = numpy.mgrid[0:height, 0:width].astype(float)
    planes = [128 + 60 * numpy.sin(x / (3 + c)) + 60 * numpy.cos(y / (5 - c)) for c in range(channels)]
    noise = numpy.random.default_rng(7).normal(0, 8, (height, width, channels))
    return numpy.clip(numpy.stack(planes, -1) + noise, 0, 255).astype(numpy.uint8)


def save(name, data, pixels):
    (OUT / name).write_bytes(data)
    (OUT / (name + ".raw")).write_bytes(numpy.ascontiguousarray(pixels).tobytes())


def jpegs():
    rgb, gray = Image.fromarray(photo(3)), Image.fromarray(photo(1)[..., 0])
    cmyk = Image.fromarray(photo(4), "CMYK")
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, image, options in [
            ("420.jpg", rgb, {"subsampling": "4:2:0"}), ("422.jpg", rgb, {"subsampling": "4:2:2"}),
            ("444.jpg", rgb, {"subsampling": "4:4:4"}), ("gray.jpg", gray, {}), ("cmyk.jpg", cmyk, {}),
            ("progressive.jpg", rgb, {"progressive": True}), ("restart.jpg", rgb, {"restart_marker_rows": 1}),
            ("orientation6.jpg", rgb, {"exif": exif})]:
        file = io.BytesIO()
        image.save(file, "jpeg", quality=85, **options)
        decoded = Image.open(io.BytesIO(file.getvalue()))
        if decoded.mode != "L":
            decoded = decoded.convert("RGB")
        save(name, file.getvalue(), numpy.asarray(decoded))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed(samples, bits):
    """Rows of samples (height, width, channels) as PNG has them, each after its filter byte 0."""
    rows = b""
    for row in samples.reshape(samples.shape[0], -1):
        if bits == 16:
            rows += b"\0" + row.astype(">u2").tobytes()
        else:
            digits = (row[:, None] >> numpy.arange(bits)[::-1]) & 1
            rows += b"\0" + numpy.packbits(digits.astype(numpy.uint8)).tobytes()
    return rows


def png(samples, bits, kind, interlaced=False, chunks=b""):
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    data = b"".join(packed(samples[y::dy, x::dx], bits) for y, x, dy, dx in passes)
    header = struct.pack(">IIBBBBB", samples.shape[1], samples.shape[0], bits, kind, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunks + chunk(b"IDAT", zlib.compress(data, 9))
            + chunk(b"IEND", b""))


def pngs():
    random = numpy.random.default_rng(3)
    height, width = 13, 11
    for bits in (1, 2, 4, 8, 16):
        samples = random.integers(0, 2 ** bits, (height, width, 1))
        pixels = (samples * 255 * 2 + 2 ** bits - 1) // (2 * (2 ** bits - 1))
        for interlaced in (False, True):
            name = f"gray{bits}{'i' if interlaced else ''}.png"
            save(name, png(samples, bits, 0, interlaced), pixels.astype(numpy.uint8))
    palette = random.integers(0, 256, (16, 3)).astype(numpy.uint8)
    index = random.integers(0, 16, (height, width, 1))
    colors = chunk(b"PLTE", palette.tobytes())
    save("palette4.png", png(index, 4, 3, chunks=colors), palette[index[..., 0]])
    alpha = numpy.r_[random.integers(0, 256, 9), [255] * 7].astype(numpy.uint8)
    save("palette4t.png", png(index, 4, 3, True, colors + chunk(b"tRNS", alpha[:9].tobytes())),
         numpy.concatenate([palette, alpha[:, None]], 1)[index[..., 0]])
    for bits in (8, 16):
        for kind, channels in ((2, 3), (6, 4), (4, 2)):
            samples = random.integers(0, 2 ** bits, (height, width, channels))
            pixels = ((samples * 255 + 32895) >> 16 if bits == 16 else samples).astype(numpy.uint8)
            if channels == 2:
                pixels = pixels[..., [0, 0, 0, 1]]
            save(f"kind{kind}_{bits}.png", png(samples, bits, kind, bits == 16), pixels)
    samples = random.integers(0, 2, (height, width, 1))
    pixels = numpy.concatenate([samples * 255] * 3 + [(samples != 1) * 255], 2).astype(numpy.uint8)
    save("gray1t.png", png(samples, 1, 0, chunks=chunk(b"tRNS", b"\0\1")), pixels)
    for name in ("gray1i", "gray4", "palette4", "kind2_8", "kind6_8"):  # Pillow agrees about these
        read = Image.open(OUT / f"{name}.png")
        read = numpy.asarray(read.convert({"1": "L", "P": "RGB"}.get(read.mode, read.mode)))
        assert read.tobytes() == (OUT / f"{name}.png.raw").read_bytes(), name


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    jpegs()
    pngs()
