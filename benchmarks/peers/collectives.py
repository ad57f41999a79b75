# SPDX-License-Identifier: Apache-2.0
"""Time of DeepSpeed's shared-memory all-reduce between processes of one host: a peer of bench_comm, which starts it.

collectives.py BUDGET_MS REPETITIONS KiB…, as every rank of a group over Gloo (RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT are set). DeepSpeed needs DS_ACCELERATOR=cpu, ninja on PATH, a C++ compiler (its operator is compiled at the
first use, about a minute) and LOCAL_SIZE: without it, 0.19.8 ends in a segmentation fault.
Rank 0 prints "AIT_BENCH <operation> <bytes> <memory> <least us> <median us>": rows of calls that fit the budget.
"""
import os
import statistics
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("LOCAL_SIZE", os.environ["WORLD_SIZE"])

import torch
import torch.distributed as dist
import deepspeed
import deepspeed.comm as ds

budget, repetitions = float(sys.argv[1]) / 1e3, int(sys.argv[2])
torch.set_num_threads(1)
deepspeed.init_distributed(dist_backend="gloo", verbose=False)
rank, size = dist.get_rank(), dist.get_world_size()


def given(r, n):
    return ((torch.arange(n) + 3 * r) % 13 - 6).float() * (r + 1)


def row(call, calls):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


for kib in map(int, sys.argv[3:]):
    n = kib * 256
    x = given(rank, n)
    ds.inference_all_reduce(x)
    if not torch.equal(x, sum(given(r, n) for r in range(size))):
        sys.exit(f"rank {rank}: inference_all_reduce of {kib} KiB gives a wrong sum")
    x.zero_()
    call = lambda: ds.inference_all_reduce(x)
    row(call, 2)
    once = torch.tensor([row(call, 3)])
    dist.all_reduce(once, op=dist.ReduceOp.MAX)
    calls = max(3, min(20000, int(budget / once.item())))
    times = [row(call, calls) * 1e6 for _ in range(repetitions)]
    if rank == 0:
        print(f"AIT_BENCH all_reduce {kib * 1024} foreign {min(times):.4f} {statistics.median(times):.4f}", flush=True)
dist.barrier()
sys.stdout.flush()
os._exit(0)  # its teardown sometimes ends in SIGABRT
