# SPDX-License-Identifier: Apache-2.0
"""How fast the loaders of others read the files that the data benchmark wrote.

loader.py write-mds TARS MDS           the samples of the tar shards in TARS as MDS shards of 64 MiB in MDS
loader.py read CASE PATH ROUNDS [--cold]
  CASE: webdataset0, webdataset2 (worker processes; PATH holds tar shards), streaming0, streaming2 (PATH holds MDS),
  dataloader0, dataloader2 (windows of 1,024 of a file of uint16 tokens), files0, files2 (PATH: a folder of files).
  Prints one JSON object: {"seconds": [one a round], "samples": n, "bytes": n}, start of workers included, as users meet
  it. --cold drops the page cache before each round (root).
"""
import argparse
import glob
import json
import os
import random
import shutil
import sys
import tarfile
import time
import warnings

warnings.filterwarnings("ignore")
parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["write-mds", "read"])
parser.add_argument("arguments", nargs="+")
parser.add_argument("--cold", action="store_true")
parser.add_argument("--batches", type=int, default=2000, help="batches of 32 windows in a round of dataloader*")
options = parser.parse_args()


def write_mds(tars, out):
    from streaming import MDSWriter
    shutil.rmtree(out, ignore_errors=True)
    with MDSWriter(out=out, columns={"bin": "bytes"}, size_limit=64 << 20) as writer:
        for name in sorted(glob.glob(os.path.join(tars, "*.tar"))):
            with tarfile.open(name) as shard:
                for member in shard:
                    writer.write({"bin": shard.extractfile(member).read()})


def webdataset(path, workers):
    import webdataset as wds
    shards = sorted(glob.glob(os.path.join(path, "*.tar")))

    def run():
        dataset = wds.WebDataset(shards, shardshuffle=False, empty_check=False)
        loader = wds.WebLoader(dataset, batch_size=None, num_workers=workers) if workers else dataset
        samples = size = 0
        for sample in loader:
            samples, size = samples + 1, size + len(sample["bin"])
        return samples, size
    return run


def streaming(path, workers):
    import torch
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    def run():
        clean_stale_shared_memory()
        dataset = StreamingDataset(local=path, shuffle=False, batch_size=32)
        samples = size = 0
        for batch in torch.utils.data.DataLoader(dataset, batch_size=32, num_workers=workers, collate_fn=list):
            samples, size = samples + len(batch), size + sum(len(sample["bin"]) for sample in batch)
        return samples, size
    return run


def dataloader(path, workers):
    import numpy
    import torch
    length = 1024

    class Windows(torch.utils.data.Dataset):
        def __init__(self):
            self.tokens = numpy.memmap(path, dtype=numpy.uint16, mode="r")
            self.count = len(self.tokens) // length - 1

        def __len__(self):
            return options.batches * 32

        def __getitem__(self, index):
            at = random.randrange(self.count) * length
            window = torch.from_numpy(self.tokens[at:at + length + 1].astype(numpy.int64))
            return window[:-1], window[1:]

    def run():
        rows = 0
        for inputs, _ in torch.utils.data.DataLoader(Windows(), batch_size=32, num_workers=workers):
            rows += inputs.shape[0]
        return rows, rows * (length + 1) * 2
    return run


def files(path, workers):
    import torch

    class Files(torch.utils.data.Dataset):
        def __init__(self):
            self.names = sorted(glob.glob(os.path.join(path, "**", "*.bin"), recursive=True))

        def __len__(self):
            return len(self.names)

        def __getitem__(self, index):
            with open(self.names[index], "rb") as file:
                return file.read()

    def run():
        samples = size = 0
        for batch in torch.utils.data.DataLoader(Files(), batch_size=32, num_workers=workers, collate_fn=list):
            samples, size = samples + len(batch), size + sum(map(len, batch))
        return samples, size
    return run


def read(case, path, rounds):
    run = {"webdataset": webdataset, "streaming": streaming, "dataloader": dataloader, "files": files}[case[:-1]](
        path, int(case[-1]))
    seconds, samples, size = [], 0, 0
    for _ in range(int(rounds)):
        if options.cold:
            os.sync()
            with open("/proc/sys/vm/drop_caches", "w") as drop:
                drop.write("3")
        start = time.perf_counter()
        samples, size = run()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "samples": samples, "bytes": size}), flush=True)


if __name__ == "__main__":
    {"write-mds": write_mds, "read": read}[options.what](*options.arguments)
    sys.exit(0)
