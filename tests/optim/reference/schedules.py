#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes schedules.txt: what torch.optim.lr_scheduler and torch.amp give, a line for each case.

    benchmarks/peers/python tests/optim/reference/schedules.py > tests/optim/reference/schedules.txt
"""
import warnings

import torch
from torch.optim import lr_scheduler as lr

warnings.simplefilter("ignore")


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


def line(name, values):
    print(name, *(repr(float(v)) for v in values))


def pure(name, make, steps):
    opt = optimizer()
    schedule = make(opt)
    values = []
    for _ in range(steps):
        values.append(opt.param_groups[0]["lr"])
        opt.step()
        schedule.step()
    line(name, values)


pure("polynomial", lambda o: lr.PolynomialLR(o, total_iters=10, power=2.0), 13)
pure("exponential", lambda o: lr.ExponentialLR(o, gamma=0.9), 20)
pure("step", lambda o: lr.StepLR(o, step_size=3, gamma=0.5), 14)
pure("multi_step", lambda o: lr.MultiStepLR(o, milestones=[2, 5, 6, 11], gamma=0.3), 14)
pure("one_cycle", lambda o: lr.OneCycleLR(o, max_lr=1.0, total_steps=20, cycle_momentum=False), 20)
pure("one_cycle_linear", lambda o: lr.OneCycleLR(o, max_lr=1.0, total_steps=17, pct_start=0.4, div_factor=10.0,
     final_div_factor=100.0, anneal_strategy="linear", cycle_momentum=False), 17)
pure("one_cycle_three", lambda o: lr.OneCycleLR(o, max_lr=1.0, total_steps=23, pct_start=0.3, three_phase=True,
     cycle_momentum=False), 23)
pure("one_cycle_fall", lambda o: lr.OneCycleLR(o, max_lr=1.0, total_steps=9, pct_start=0.0, cycle_momentum=False), 9)
pure("chained", lambda o: lr.ChainedScheduler([lr.ExponentialLR(o, gamma=0.9), lr.StepLR(o, step_size=4, gamma=0.5)]), 14)
pure("sequential", lambda o: lr.SequentialLR(o, [lr.ExponentialLR(o, gamma=0.9), lr.PolynomialLR(o, total_iters=8, power=2.0),
     lr.StepLR(o, step_size=2, gamma=0.5)], milestones=[5, 9]), 16)

# A metric that falls, stalls, jumps and falls again; no value but the best is repeated in the worse mode.
METRICS = [5.0, 4.0, 3.9999, 3.9998, 4.5, 4.4, 3.0, 3.1, float("nan"), 3.2, 3.3, 2.9999, 2.5, 2.6, 2.7, 2.8, 2.9, 2.55, 2.2,
           2.3, 2.3, 2.3, 2.3, 2.3]


def plateau(name, metrics, **options):
    opt = optimizer()
    schedule = lr.ReduceLROnPlateau(opt, **options)
    values = []
    for metric in metrics:
        schedule.step(metric)
        values.append(opt.param_groups[0]["lr"])
    line(name, values)


line("metrics", METRICS)
plateau("plateau", METRICS, patience=1, factor=0.5)
plateau("plateau_cooldown", METRICS, patience=0, factor=0.5, cooldown=3, min_lr=0.2)
plateau("plateau_absolute", METRICS, patience=2, factor=0.1, threshold=0.4, threshold_mode="abs")
plateau("plateau_larger", METRICS, patience=1, factor=0.5, mode="max", eps=0.1)
plateau("plateau_larger_absolute", METRICS, patience=1, factor=0.5, mode="max", threshold=0.3, threshold_mode="abs")

# 1: not finite.
FOUND = [0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
scale, tracker, values = torch.full((1,), 1024.0), torch.zeros(1, dtype=torch.int32), []
for found in FOUND:
    values.append(scale.item())
    torch._amp_update_scale_(scale, tracker, torch.full((1,), float(found)), 2.0, 0.5, 3)
line("found", FOUND)
line("scale", values)
