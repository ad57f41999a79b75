#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes torch_reference.json, what the optimizers of Python's torch.optim do with given numbers.

    python3 tests/optim/reference/torch_reference.py > tests/optim/reference/torch_reference.json

Needs torch (the file in the tree was made by the version that it names). Every case is one optimizer over a few
small fp32 parameters, for some steps: gradients, and the parameters and states after each step. torch_reference_test.cc
takes each step from the state before it and compares.
"""
import json

import torch

STEPS = 4
SHAPES = {"matrix": [4, 5], "vector": [7], "cube": [2, 2, 3], "scalar": []}
# Steps at which the learning rate is another multiple of the case's: a schedule.
FACTORS = [1.0, 1.0, 0.5, 0.25]
GRADIENT_SIZES = [0.1, 0.03, 0.3, 0.1]

CASES = {
    "adamw": (torch.optim.AdamW, dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)),
    "adamw_amsgrad": (torch.optim.AdamW, dict(lr=3e-3, weight_decay=0.1, amsgrad=True)),
    "adam": (torch.optim.Adam, dict(lr=3e-3, weight_decay=0.1)),
    "adam_amsgrad": (torch.optim.Adam, dict(lr=3e-3, amsgrad=True)),
    "sgd": (torch.optim.SGD, dict(lr=0.03, weight_decay=0.01)),
    "sgd_momentum": (torch.optim.SGD, dict(lr=0.03, momentum=0.9, weight_decay=0.01)),
    "sgd_dampening": (torch.optim.SGD, dict(lr=0.03, momentum=0.9, dampening=0.3)),
    "sgd_nesterov": (torch.optim.SGD, dict(lr=0.03, momentum=0.9, nesterov=True, weight_decay=0.01)),
    "adafactor": (torch.optim.Adafactor, dict(lr=1e-2)),
    "adafactor_options": (torch.optim.Adafactor,
                          dict(lr=0.05, beta2_decay=-0.6, eps=(1e-4, 1e-2), d=1.5, weight_decay=0.02)),
}


def numbers(tensor):
    return [float(x) for x in tensor.detach().reshape(-1).to(torch.float64)]


def shortest(value):
    """The least decimal that is the same fp32."""
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if torch.tensor(float(text), dtype=torch.float32).item() == value:
            return float(text)
    raise ValueError(value)


def run(kind, options):
    torch.manual_seed(5)
    parameters = {name: torch.randn(shape).requires_grad_() for name, shape in SHAPES.items()}
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.copy_(torch.tensor(
                [shortest(x) for x in numbers(parameter)]).reshape(parameter.shape))
    optimizer = kind(parameters.values(), foreach=False, **options)
    case = {"optimizer": kind.__name__,
            "options": {key: list(value) if isinstance(value, tuple) else value
                        for key, value in options.items()},
            "factors": FACTORS,
            "initial": {name: numbers(p) for name, p in parameters.items()},
            "steps": []}
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = options["lr"] * FACTORS[step]
        gradients = {}
        for name, parameter in parameters.items():
            parameter.grad = torch.randn(parameter.shape) * GRADIENT_SIZES[step]
            gradients[name] = numbers(parameter.grad)
        optimizer.step()
        state = {name: {key: numbers(value) for key, value in optimizer.state[p].items()
                        if key != "step" and value is not None}
                 for name, p in parameters.items()}
        case["steps"].append({"gradients": gradients,
                              "parameters": {name: numbers(p) for name, p in parameters.items()},
                              "state": state})
    return case


def shortened(value):
    if isinstance(value, dict):
        return {key: shortened(inner) if key != "options" else inner for key, inner in value.items()}
    if isinstance(value, list):
        return [shortened(inner) for inner in value]
    return shortest(value) if isinstance(value, float) else value


def main():
    torch.set_num_threads(1)
    cases = {name: shortened(run(*case)) for name, case in CASES.items()}
    print("{")
    print(f' "torch": "{torch.__version__.split("+")[0]}",')
    print(f' "shapes": {json.dumps(SHAPES)},')
    print(' "cases": {')
    for i, (name, case) in enumerate(cases.items()):
        # One line for each step, so that a difference can be read.
        steps = ",\n".join("   " + json.dumps(step, separators=(",", ":")) for step in case.pop("steps"))
        head = json.dumps(case, separators=(",", ":"))[:-1]
        print(f'  "{name}": {head},"steps":[\n{steps}]}}' + ("," if i + 1 < len(cases) else ""))
    print(" }")
    print("}")


if __name__ == "__main__":
    main()
