// SPDX-License-Identifier: Apache-2.0
#include "gpt.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/init.h>

namespace nn = torch::nn;

std::optional<GptConfig> GptConfig::Named(std::string_view name) {
  if (name == "tiny")
    return GptConfig{.layers = 2, .width = 32, .heads = 2, .context = 32, .batch = 2};
  if (name == "quickstart")
    return GptConfig{.layers = 4, .width = 192, .heads = 6, .context = 128, .batch = 4};
  if (name == "A") return GptConfig{};
  if (name == "B")
    return GptConfig{.layers = 6, .width = 1024, .heads = 16, .context = 64, .batch = 1};
  return std::nullopt;
}

BlockImpl::BlockImpl(std::int64_t width, std::int64_t heads)
    : heads(heads),
      ln1(register_module("ln1", nn::LayerNorm(nn::LayerNormOptions({width})))),
      ln2(register_module("ln2", nn::LayerNorm(nn::LayerNormOptions({width})))),
      qkv(register_module("qkv", nn::Linear(width, 3 * width))),
      proj(register_module("proj", nn::Linear(width, width))),
      up(register_module("up", nn::Linear(width, 4 * width))),
      down(register_module("down", nn::Linear(4 * width, width))) {}

torch::Tensor BlockImpl::forward(torch::Tensor x) {
  const auto b = x.size(0), t = x.size(1), d = x.size(2);
  const auto q_k_v =
      qkv(ln1(x)).view({b, t, 3, heads, d / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
  auto y = at::scaled_dot_product_attention(q_k_v[0], q_k_v[1], q_k_v[2], /*attn_mask=*/{},
                                            /*dropout_p=*/0.0,
                                            /*is_causal=*/true);
  x = x + proj(y.transpose(1, 2).reshape({b, t, d}));
  return x + down(at::gelu(up(ln2(x)), "tanh"));
}

GptImpl::GptImpl(const GptConfig& config)
    : tok(register_module("tok", nn::Embedding(config.vocabulary, config.width))),
      pos(register_module("pos", nn::Embedding(config.context, config.width))),
      blocks(register_module("blocks", nn::ModuleList())),
      ln(register_module("ln", nn::LayerNorm(nn::LayerNormOptions({config.width})))),
      head(register_module(
          "head", nn::Linear(nn::LinearOptions(config.width, config.vocabulary).bias(false)))) {
  for (std::int64_t i = 0; i < config.layers; ++i)
    blocks->push_back(Block(config.width, config.heads));
  for (auto& parameter : parameters()) {
    if (parameter.dim() == 2) nn::init::normal_(parameter, 0.0, 0.02);
  }
}

torch::Tensor GptImpl::forward(torch::Tensor tokens) {
  auto x = tok(tokens) + pos->weight.narrow(0, 0, tokens.size(1));
  for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
  return head(ln(x));
}
