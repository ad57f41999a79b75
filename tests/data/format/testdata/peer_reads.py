#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads with a format's own program what a test wrote: peer_reads.py FORMAT PATH.

Exit 0: it is what the test wrote; 77: the program is not installed.
"""
import sys


def mds(path):
    import numpy as np
    from streaming import StreamingDataset

    data = StreamingDataset(local=path, shuffle=False, batch_size=1)
    assert len(data) == 5
    for i in range(5):
        sample = data[i]
        assert sample["__key__"] == f"key{i}" and sample["raw"] == b"j" * i, sample
        assert sample["text"] == "\u00e4" and sample["label"] == i, sample
        assert sample["x"].dtype == np.float32 and sample["x"].shape == (1, i + 1), sample
        assert (sample["x"] == 0.5).all()


def main():
    try:
        {"mds": mds}[sys.argv[1]](sys.argv[2])
    except ImportError as error:
        print(error)
        sys.exit(77)


if __name__ == "__main__":
    main()
