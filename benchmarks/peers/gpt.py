# SPDX-License-Identifier: Apache-2.0
"""The GPT that every training comparison runs, as examples/03-gpt/gpt.cc builds it in C++.

Pre-LayerNorm decoder; per block LayerNorm, fused qkv Linear, causal attention, output Linear, LayerNorm, Linear 4d,
GELU (tanh), Linear; biases on all Linears but the untied head; learned positions; no dropout; N(0, 0.02) weights; mean
cross-entropy over every position.
"""
import json
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIGURATIONS = json.loads(pathlib.Path(__file__).with_name("gpt.json").read_text())
ADAMW = dict(lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.proj(y)
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, width, heads, context, vocabulary=256, **_):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.tok(tokens) + self.pos.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.ln(x)).flatten(0, 1), targets.flatten())


def build(name):
    torch.manual_seed(1)
    return GPT(**CONFIGURATIONS[name])


def batch(name, seed):
    c = CONFIGURATIONS[name]
    generator = torch.Generator().manual_seed(seed)
    t = torch.randint(0, 256, (c["batch"], c["context"] + 1), generator=generator)
    return t[:, :-1].contiguous(), t[:, 1:].contiguous()
