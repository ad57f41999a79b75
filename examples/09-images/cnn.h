// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_EXAMPLES_09_IMAGES_CNN_H_
#define AIT_EXAMPLES_09_IMAGES_CNN_H_

#include <torch/nn/modules/container/sequential.h>

#include "ait/data/decode/transform.h"

enum class Use { kTraining, kTest };

/// From the fields "jpg" and "cls" of a sample to the arrays "image" and "label"; for training
/// with a random flip.
ait::Transform Decode(Use use);

/// Two convolutions and a linear layer, of weights that are the same on every call.
torch::nn::Sequential MakeCnn();

#endif  // AIT_EXAMPLES_09_IMAGES_CNN_H_
