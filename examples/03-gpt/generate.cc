// SPDX-License-Identifier: Apache-2.0
#include "generate.h"

#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <torch/utils.h>

std::string Continue(GptImpl& model, const Options& options) {
  torch::NoGradGuard no_grad;
  torch::manual_seed(options.seed);
  std::string text = options.prompt;
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const auto context = static_cast<std::size_t>(options.config.context);
    const std::string recent = text.size() > context ? text.substr(text.size() - context) : text;
    std::vector<std::int64_t> tokens;
    for (const char c : recent) tokens.push_back(static_cast<unsigned char>(c));
    const at::Tensor logits = model.forward(at::tensor(tokens).unsqueeze(0))[0][-1];
    const at::Tensor next = options.temperature > 0
                                ? at::multinomial(at::softmax(logits / options.temperature, 0), 1)
                                : logits.argmax();
    text += static_cast<char>(next.item<std::int64_t>());
  }
  return text;
}
