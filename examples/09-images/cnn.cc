// SPDX-License-Identifier: Apache-2.0
#include "cnn.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/utils.h>

#include "ait/data/decode/field_transforms.h"
#include "ait/data/decode/image_transforms.h"

ait::Transform Decode(Use use) {
  return ait::Chain({ait::DecodeImage({.mode = ait::ColorMode::kGray}),
                     ait::RandomFlip({.horizontal = use == Use::kTraining ? 0.5 : 0.0}),
                     ait::Normalize({.normalization = {.mean = {0.286f}, .deviation = {0.353f}}}),
                     ait::ParseInteger({.field = "cls", .output = "label", .end = 10})});
}

torch::nn::Sequential MakeCnn() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).padding(1)),
                               torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                               torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).padding(1)),
                               torch::nn::ReLU(), torch::nn::MaxPool2d(2), torch::nn::Flatten(),
                               torch::nn::Linear(32 * 7 * 7, 10));
}
