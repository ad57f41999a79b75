#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes resize.txt: images resized by Pillow. A line: filter, channels, from (h w), to (h w), box (top left height
width), CRC-32 of the result's bytes. The input of all is `pixels` below. Needs pillow and numpy; written with
Pillow 13.0.0.
"""
import pathlib
import zlib

import numpy
from PIL import Image

FILTERS = {"nearest": Image.NEAREST, "box": Image.BOX, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC,
           "lanczos": Image.LANCZOS}
MODES = {1: "L", 3: "RGB"}


def pixels(height, width, channels):
    i = numpy.arange(height * width * channels, dtype=numpy.uint32)
    return ((i * numpy.uint32(2654435761)) >> 24).astype(numpy.uint8).reshape(height, width, channels)


def main():
    lines = []
    for name, kind in FILTERS.items():
        for channels in (1, 3):
            for size, to, box in [((37, 53), (16, 16), None), ((37, 53), (80, 71), None), ((64, 48), (64, 20), None),
                                  ((64, 48), (31, 48), None), ((5, 300), (9, 7), None), ((1, 1), (4, 3), None),
                                  ((100, 120), (32, 32), (10.5, 3.25, 70.25, 90)), ((60, 60), (1, 1), None),
                                  ((50, 50), (50, 50), (0, 1, 50, 49)), ((50, 50), (12, 50), (3, 0, 40, 50))]:
                image = Image.fromarray(pixels(*size, channels).squeeze(2) if channels == 1 else
                                        pixels(*size, channels), MODES[channels])
                top, left, height, width = box or (0, 0, *size)
                result = image.resize(to[::-1], kind, box=(left, top, left + width, top + height))
                lines.append(" ".join(map(str, [name, channels, *size, *to, top, left, height, width,
                                                zlib.crc32(result.tobytes())])))
    (pathlib.Path(__file__).parent / "resize.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
