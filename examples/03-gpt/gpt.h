// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_EXAMPLES_03_GPT_GPT_H_
#define AIT_EXAMPLES_03_GPT_GPT_H_

// The model: a GPT with pre-LayerNorm blocks, written with torch::nn and nothing of ait.

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>

struct GptConfig {
  std::int64_t layers = 6;
  std::int64_t width = 384;
  std::int64_t heads = 6;
  std::int64_t vocabulary = 256;
  std::int64_t context = 128;  // tokens a sequence
  std::int64_t batch = 8;      // sequences a rank and step

  /// "tiny" only shows that everything works; "quickstart" learns words in two minutes on two
  /// cores; "A" and "B" are the sizes of the benchmarks: A is bound by computation (10.9 M
  /// parameters), B by memory and communication (76.2 M).
  static std::optional<GptConfig> Named(std::string_view name);
};

struct BlockImpl : torch::nn::Module {
  BlockImpl(std::int64_t width, std::int64_t heads);
  torch::Tensor forward(torch::Tensor x);

  std::int64_t heads;
  torch::nn::LayerNorm ln1, ln2;
  torch::nn::Linear qkv, proj, up, down;
};
TORCH_MODULE(Block);

/// tokens [batch, time] -> logits [batch, time, vocabulary]; time ≤ context.
struct GptImpl : torch::nn::Module {
  explicit GptImpl(const GptConfig& config);
  torch::Tensor forward(torch::Tensor tokens);

  torch::nn::Embedding tok, pos;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm ln;
  torch::nn::Linear head;
};
TORCH_MODULE(Gpt);

#endif  // AIT_EXAMPLES_03_GPT_GPT_H_
