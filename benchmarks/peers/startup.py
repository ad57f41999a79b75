# SPDX-License-Identifier: Apache-2.0
"""One rank: joins over Gloo, does one all-reduce, and says when it was done. The twin of launch/startup_rank.cc."""
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1024))
if dist.get_rank() == 0:
    print(f"done {time.monotonic_ns()}", flush=True)
dist.destroy_process_group()
