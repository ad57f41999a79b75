#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Optimizer state of ait to and from `optimizer.state_dict()` of torch.optim. Copy it into your project.

    load_optimizer("run/optimizer.safetensors", optimizer, model.named_parameters())
    save_optimizer("run/optimizer.safetensors", optimizer, model.named_parameters())

The groups of a torch optimizer are the caller's: make it with the parameters and options that you want; what is loaded
is the state, and the learning rates and other options only where `options=True`. The two functions of safetensors
files below need nothing but torch; the library of that name reads and writes the same files.
"""
import json
import struct

import torch

FORMAT = 1
NAMES = {"AdamW": "adamw", "Adam": "adam", "SGD": "sgd", "Adafactor": "adafactor", "Muon": "muon"}
DTYPES = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16, "F16": torch.float16,
          "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "U16": torch.uint16, "I8": torch.int8,
          "U8": torch.uint8}


def read_safetensors(path):
    """Tensors by name, and the metadata."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        dtype = DTYPES[info["dtype"]]
        tensors[name] = (torch.frombuffer(data[begin:end], dtype=dtype) if end > begin
                         else torch.empty(0, dtype=dtype)).reshape(info["shape"])
    return tensors, metadata


def write_safetensors(path, tensors, metadata):
    names = {dtype: name for name, dtype in DTYPES.items()}
    header, data = {"__metadata__": metadata}, b""
    order = ["I64", "F64", "F32", "I32", "BF16", "F16", "U16", "I16", "I8", "U8"]
    for name, tensor in sorted(tensors.items(), key=lambda t: (order.index(names[t[1].dtype]), t[0])):
        tensor = tensor.detach().cpu().contiguous()
        raw = bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def save_optimizer(path, optimizer, named_parameters):
    """Writes what ait's LoadOptimizer reads. All parameters must have taken the same number of steps."""
    name_of = {id(parameter): name for name, parameter in named_parameters}
    tensors, steps, groups = {}, set(), []
    for group in optimizer.param_groups:
        names = [name_of[id(parameter)] for parameter in group["params"]]
        groups.append({key: value for key, value in group.items()
                       if key != "params" and isinstance(value, (int, float, str, tuple, list))} | {"params": names})
        for name, parameter in zip(names, group["params"]):
            for key, value in optimizer.state.get(parameter, {}).items():
                if key == "step":
                    steps.add(int(value))
                elif value is not None:
                    tensors[f"state.{name}.{key}"] = value
    if len(steps) > 1:
        raise ValueError(f"parameters are at different steps, {sorted(steps)}; ait has one")
    tensors["step"] = torch.tensor(steps.pop() if steps else 0, dtype=torch.int64)
    write_safetensors(path, tensors, {
        "format": "pt", "optimizer_format": str(FORMAT), "optimizer": NAMES[type(optimizer).__name__],
        "state_version": "1", "description": f"torch.optim.{type(optimizer).__name__}", "memory_order": "{}",
        "param_groups": json.dumps(groups)})


def load_optimizer(path, optimizer, named_parameters, options=False):
    """Gives the state of a file to an optimizer of torch. Masters ("master", "remainder", "compensation") are left out:
    torch has no place for them. Returns what was left out."""
    tensors, metadata = read_safetensors(path)
    name = NAMES[type(optimizer).__name__]
    if metadata.get("optimizer_format") != str(FORMAT) or metadata.get("optimizer") != name:
        raise ValueError(f"{path} is of optimizer {metadata.get('optimizer')!r}, format "
                         f"{metadata.get('optimizer_format')!r}; expected {name!r}, {FORMAT}")
    name_of = {id(parameter): name for name, parameter in named_parameters}
    state_dict = optimizer.state_dict()
    groups = {n: group for group in json.loads(metadata["param_groups"]) for n in group["params"]}
    left_out = set(tensors) - {"step"}
    for group, described in zip(optimizer.param_groups, state_dict["param_groups"]):
        for parameter, index in zip(group["params"], described["params"]):
            prefix = f"state.{name_of[id(parameter)]}."
            state = {key[len(prefix):]: value for key, value in tensors.items()
                     if key.startswith(prefix) and "." not in key[len(prefix):]}
            for key in ("master", "remainder", "compensation"):
                state.pop(key, None)
            left_out -= {prefix + key for key in state}
            if state and name not in ("sgd", "muon"):
                state["step"] = tensors["step"].to(torch.float32)
            if state:
                state_dict["state"][index] = state
            if options:
                described.update({key: value for key, value in groups.get(name_of[id(parameter)], {}).items()
                                  if key in described and key != "params"})
    optimizer.load_state_dict(state_dict)
    return sorted(left_out)
