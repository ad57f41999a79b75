# SPDX-License-Identifier: Apache-2.0
"""Writes the tables that arrow_test reads: arrow_tables.py DIRECTORY, with pyarrow 26."""
import os
import sys

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

out = sys.argv[1]
rows = 5
table = pa.table({
    "label": pa.array([3, 1, None, 4, -5], pa.int64()),
    "small": pa.array([0, 1, 2, 3, 255], pa.uint8()),
    "score": pa.array([0.5, -1.5, 2.0, None, 1e30], pa.float64()),
    "flag": pa.array([True, False, True, True, False]),
    "text": pa.array(["a", "", "grüße", None, "x" * 300]),
    "raw": pa.array([b"\x00\x01", b"", b"\xff" * 9, b"z", None], pa.binary()),
    "fixed": pa.array([b"abc"] * rows, pa.binary(3)),
    "tokens": pa.array([[1, 2, 3], [], [7], [8, 9], [10] * 20], pa.list_(pa.int32())),
    "box": pa.array([[[1.0, 2.0], [3.0, 4.0]]] * rows, pa.list_(pa.list_(pa.float32(), 2), 2)),
    "image": pa.array([{"bytes": b"jpg%d" % i, "path": "p%d" % i} for i in range(rows)]),
    "kind": pa.array(["cat", "dog", "cat", "cow", "dog"]).dictionary_encode(),
    "when": pa.array([0, 1, 2, 3, 4], pa.timestamp("ms")),
})
pq.write_table(table, os.path.join(out, "table.parquet"), row_group_size=2, compression="zstd")
with pa.ipc.new_file(os.path.join(out, "table.arrow"), table.schema) as writer:
    writer.write_table(table, max_chunksize=3)
with pa.ipc.new_stream(os.path.join(out, "stream.arrow"), table.schema) as writer:
    writer.write_table(table, max_chunksize=3)
pa.feather.write_feather(table, os.path.join(out, "table.feather"), compression="lz4")
pq.write_table(pa.table({"bad": pa.array([{1: 2}], pa.map_(pa.int32(), pa.int32()))}), os.path.join(out, "map.parquet"))
pq.write_table(pa.table({"bad": pa.array([[[1], [2, 3]]], pa.list_(pa.list_(pa.int32())))}), os.path.join(out, "ragged.parquet"))
pq.write_table(pa.table({"x": pa.array([], pa.int32())}), os.path.join(out, "empty.parquet"))
