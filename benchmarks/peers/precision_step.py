# SPDX-License-Identifier: Apache-2.0
"""Step time of the GPT in torch DDP: fp32, bf16 autocast, and bf16 parameters.

precision_step.py CONFIGURATION ROUNDS, as every rank of a group over Gloo (RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT are set), one thread each; fused AdamW. The variants alternate round by round. Rank 0 prints one JSON
object a line: {"variant": …, "step_ms": [one a round]}; a step takes as long as its slowest rank.
"""
import contextlib
import json
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import gpt

name, rounds = sys.argv[1], int(sys.argv[2])
WARM = 2
torch.set_num_threads(1)
dist.init_process_group("gloo")
data = gpt.batch(name, dist.get_rank() * 100)


class Variant:
    def __init__(self, parameters, autocast):
        self.model = DDP(gpt.build(name).to(parameters), gradient_as_bucket_view=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True, **gpt.ADAMW)
        self.autocast = autocast
        self.times = []

    def step(self):
        with torch.autocast("cpu", torch.bfloat16) if self.autocast else contextlib.nullcontext():
            loss = self.model(*data)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


variants = {"fp32": Variant(torch.float32, False), "autocast": Variant(torch.float32, True),
            "bf16": Variant(torch.bfloat16, False)}
for r in range(rounds + WARM):
    for v in variants.values():
        dist.barrier()
        start = time.perf_counter()
        v.step()
        t = torch.tensor([time.perf_counter() - start])
        dist.all_reduce(t, op=dist.ReduceOp.MAX)
        if r >= WARM:
            v.times.append(t.item() * 1e3)
if dist.get_rank() == 0:
    for variant, v in variants.items():
        print(json.dumps({"variant": variant, "step_ms": v.times}), flush=True)
dist.barrier()
dist.destroy_process_group()
