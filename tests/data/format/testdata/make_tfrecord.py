#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes examples.tfrecord by the package `tfrecord` (pip install tfrecord), with Google's protobuf."""
import pathlib

from tfrecord.writer import TFRecordWriter

writer = TFRecordWriter(str(pathlib.Path(__file__).parent / "examples.tfrecord"))
for i in range(3):
    writer.write({
        "image": (b"bytes %d" % i, "byte"),
        "label": ([i, -i, i << 20], "int"),
        "weight": ([i * 0.5, 1.0], "float"),
        "words": ([b"a%d" % i, b"b%d" % i], "byte"),
    })
writer.close()
