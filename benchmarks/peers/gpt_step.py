# SPDX-License-Identifier: Apache-2.0
"""Step time of the GPT in torch: plain, DDP and DDP with gradient_as_bucket_view, with the fused and the foreach AdamW.

gpt_step.py CONFIGURATION ROUNDS, as every rank of a group over Gloo (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are
set), one thread each. The variants alternate round by round. Rank 0 prints one JSON object a line:
{"variant": …, "optimizer": …, "step_ms": [one a round]}; a step takes as long as its slowest rank.
"""
import json
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import gpt

name, rounds = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
data = gpt.batch(name, rank * 100)


class Variant:
    def __init__(self, wrap, optimizer):
        model = gpt.build(name)
        self.model = model if wrap == "plain" else DDP(model, gradient_as_bucket_view=(wrap == "ddp-view"))
        self.optimizer = torch.optim.AdamW(model.parameters(), **gpt.ADAMW, **{optimizer: True})
        self.times = []

    def step(self):
        self.model(*data).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


variants = {(wrap, opt): Variant(wrap, opt) for opt in ("fused", "foreach") for wrap in ("plain", "ddp", "ddp-view")}
for r in range(rounds + 2):
    for v in variants.values():
        dist.barrier()
        start = time.perf_counter()
        v.step()
        t = torch.tensor([time.perf_counter() - start])
        dist.all_reduce(t, op=dist.ReduceOp.MAX)
        if r >= 2:
            v.times.append(t.item() * 1e3)
if rank == 0:
    for (wrap, opt), v in variants.items():
        print(json.dumps({"variant": wrap, "optimizer": opt, "step_ms": v.times}), flush=True)
dist.destroy_process_group()
