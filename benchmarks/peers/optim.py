# SPDX-License-Identifier: Apache-2.0
"""One optimizer step over 50.86 M parameters in 148 tensors with Python's torch and DeepSpeed.

optim.py: for each line of its input, a number of threads, one call of each variant, in milliseconds, as one JSON
object a line: {"fused": …, "whole": …, "bf16_master": …, "deepspeed": …}. The caller measures its own in between.

fused: torch.optim.AdamW(fused=True).  whole: clip_grad_norm_(foreach=True), fused, gradients to zero.
bf16_master: the torch idiom for bf16 parameters and gradients with fp32 masters: widen, fused on the masters, narrow.
deepspeed: DeepSpeedCPUAdam (adamw_mode). It compiles its kernel at the first use (DS_ACCELERATOR=cpu).
"""
import contextlib
import json
import sys
import time

import torch

HYPER = dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
d = 592
shapes = 12 * [(3 * d, d), (3 * d,), (d, d), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,), (d,), (d,), (d,), (d,)]
shapes += [(256, d), (256, d), (d,), (d,)]


def tensors(dtype):
    out = []
    for shape in shapes:
        tensor = (torch.randn(shape) * 0.02).to(dtype).requires_grad_()
        tensor.grad = torch.full(shape, 0.01, dtype=dtype)
        out.append(tensor)
    return out


with contextlib.redirect_stdout(sys.stderr):
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    parameters = tensors(torch.float32)
    gradients = [p.grad for p in parameters]
    fused = torch.optim.AdamW(parameters, **HYPER, fused=True)
    halves = tensors(torch.bfloat16)
    masters = [p.detach().float().requires_grad_() for p in halves]
    for master in masters:
        master.grad = torch.empty_like(master)
    on_masters = torch.optim.AdamW(masters, **HYPER, fused=True)
    deepspeed = DeepSpeedCPUAdam(tensors(torch.float32), **HYPER, adamw_mode=True, fp32_optimizer_states=True)


def whole():
    torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
    fused.step()
    torch._foreach_zero_(gradients)


def bf16_master():
    torch._foreach_copy_([m.grad for m in masters], [p.grad for p in halves])
    on_masters.step()
    with torch.no_grad():
        torch._foreach_copy_(halves, masters)


variants = {"fused": fused.step, "whole": whole, "bf16_master": bf16_master, "deepspeed": deepspeed.step}
for line in sys.stdin:
    torch.set_num_threads(int(line))
    row = {}
    for name, call in variants.items():
        for gradient in gradients if name == "whole" else ():
            gradient.fill_(0.01)
        start = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr):
            call()
        row[name] = 1e3 * (time.perf_counter() - start)
    print(json.dumps(row), flush=True)
