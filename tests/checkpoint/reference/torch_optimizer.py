#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An AdamW of torch after three steps, as a file of ait, and the other way round.

    torch_optimizer.py write FILE         makes torch_adamw.safetensors, which optimizer_state_test.cc reads
    torch_optimizer.py verify FILE TORCH  FILE is what ait made of TORCH: loads it into torch.optim and compares; exit 77
                                          where torch is not there
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "docs"))
try:
    import torch
    from torch_optimizer_state import load_optimizer, save_optimizer
except ImportError as error:
    print(error)
    sys.exit(77)


def make(steps):
    torch.manual_seed(7)
    parameters = {"w": torch.randn(3, 5), "conv": torch.randn(2, 3, 2, 2), "b": torch.randn(5), "s": torch.randn(())}
    for parameter in parameters.values():
        parameter.requires_grad_()
    decayed = [p for p in parameters.values() if p.dim() > 1]
    rest = [p for p in parameters.values() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95))
    for _ in range(steps):
        for parameter in parameters.values():
            parameter.grad = torch.randn(parameter.shape)
        optimizer.step()
    return parameters, optimizer


def main():
    if sys.argv[1] == "write":
        parameters, optimizer = make(3)
        save_optimizer(sys.argv[2], optimizer, parameters.items())
        return
    expected, _ = make(0)
    reference = torch.optim.AdamW(expected.values())
    assert load_optimizer(sys.argv[3], reference, expected.items()) == []
    parameters, optimizer = make(0)
    assert load_optimizer(sys.argv[2], optimizer, parameters.items(), options=True) == []
    for name, parameter in parameters.items():
        state, theirs = optimizer.state[parameter], reference.state[expected[name]]
        assert set(state) == {"step", "exp_avg", "exp_avg_sq"}, (name, set(state))
        for key, value in state.items():
            assert torch.equal(value, theirs[key]), (name, key)
            assert value.dtype == torch.float32 and (key == "step" or value.shape == parameter.shape)
        assert state["step"] == 3
    for group in optimizer.param_groups:
        assert group["lr"] == 3e-4 and tuple(group["betas"]) == (0.9, 0.95), group
        assert group["weight_decay"] == (0.1 if group["params"][0].dim() > 1 else 0.0), group
    for parameter in parameters.values():  # and it goes on
        parameter.grad = torch.ones(parameter.shape)
    optimizer.step()
    assert optimizer.state[parameters["w"]]["step"] == 4


if __name__ == "__main__":
    main()
