# SPDX-License-Identifier: Apache-2.0
"""Step time and growth of memory of sharded training of the GPT in Python: one peer a launch, so that peaks do not mix.

zero_step.py CONFIGURATION ROUNDS PEER, as every rank of a group over Gloo (RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT are set), one thread each. PEER: torch-ddp, fsdp2, fsdp2-keep (parameters stay gathered until backward),
deepspeed1, deepspeed2, deepspeed3. Every rank prints a JSON object: {"peer": …, "rank": …, "step_ms": [one a round],
"growth_mib": peak of resident memory while training minus that before the model, "settled_mib": the same at the end}; a
step takes as long as its slowest rank. DeepSpeed needs ninja and a compiler: it builds its optimizer at the first use.
"""
import json
import os
import sys
import time

name, rounds, peer = sys.argv[1], int(sys.argv[2]), sys.argv[3]
WARM = 2

import torch
import torch.distributed as dist

import gpt

torch.set_num_threads(1)
if peer.startswith("deepspeed"):
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("LOCAL_SIZE", os.environ["WORLD_SIZE"])
    import deepspeed
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    DeepSpeedCPUAdam([torch.nn.Parameter(torch.zeros(1))])  # builds it before the first measurement
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
else:
    dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def resident_mib(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def deepspeed_step(model, stage):
    sizes = ("reduce_bucket_size", "allgather_bucket_size", "stage3_prefetch_bucket_size",
             "stage3_max_live_parameters", "stage3_max_reuse_distance")
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=DeepSpeedCPUAdam(model.parameters(), adamw_mode=True, **gpt.ADAMW),
        config={
            "train_micro_batch_size_per_gpu": gpt.CONFIGURATIONS[name]["batch"],
            # Buckets of 8 M elements: less memory and less time here than the 500 M of its defaults.
            "zero_optimization": {"stage": stage} | {size: 8_000_000 for size in sizes},
            "gradient_clipping": 0.0,  # its default is 1.0; nobody else clips
            "steps_per_print": 10**9,
        })

    def step():
        engine.backward(engine(*data))
        engine.step()

    return step


def torch_step(model):
    if peer == "torch-ddp":
        net = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        options = dict(mesh=init_device_mesh("cpu", (world,)), reshard_after_forward=peer != "fsdp2-keep")
        for block in model.blocks:
            fully_shard(block, **options)
        net = fully_shard(model, **options)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True, **gpt.ADAMW)

    def step():
        net(*data).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


data = gpt.batch(name, rank)
tiny = gpt.GPT(layers=2, width=32, heads=2, context=32)  # the code of a step is in memory before
tiny(torch.zeros(2, 32, dtype=torch.long), torch.zeros(2, 32, dtype=torch.long)).backward()
torch.optim.AdamW(tiny.parameters(), fused=True).step()
before = resident_mib("VmRSS:")
with open("/proc/self/clear_refs", "w") as clear:
    clear.write("5")  # VmHWM begins anew
model = gpt.build(name)
step = deepspeed_step(model, int(peer[-1])) if peer.startswith("deepspeed") else torch_step(model)
times = []
for r in range(rounds + WARM):
    dist.barrier()
    start = time.perf_counter()
    step()
    t = torch.tensor([time.perf_counter() - start])
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    if r >= WARM:
        times.append(t.item() * 1e3)
row = {"peer": peer, "rank": rank, "step_ms": times, "growth_mib": resident_mib("VmHWM:") - before,
       "settled_mib": resident_mib("VmRSS:") - before}
print(json.dumps(row), flush=True)
dist.barrier()
sys.stdout.flush()
os._exit(0)  # its teardown sometimes ends in SIGABRT
