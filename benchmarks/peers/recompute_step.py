# SPDX-License-Identifier: Apache-2.0
"""Step time of the GPT with torch.utils.checkpoint around every block, and without.

recompute_step.py CONFIGURATION none|block ROUNDS, in one process with two threads; fused AdamW. Prints one JSON object:
{"step_ms": [one a round], "resident_mib": after forward}.
"""
import functools
import json
import sys
import time

import torch
from torch.utils.checkpoint import checkpoint

import gpt

name, mode, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
WARM = 2
torch.set_num_threads(2)
x, y = gpt.batch(name, 0)
model = gpt.build(name)
if mode == "block":
    for block in model.blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
optimizer = torch.optim.AdamW(model.parameters(), fused=True, **gpt.ADAMW)


def resident_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024


times = []
for i in range(rounds + WARM):
    start = time.perf_counter()
    loss = model(x, y)
    resident = resident_mib()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if i >= WARM:
        times.append((time.perf_counter() - start) * 1e3)
print(json.dumps({"step_ms": times, "resident_mib": resident}), flush=True)
