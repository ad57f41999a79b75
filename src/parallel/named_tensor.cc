// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/named_tensor.h"

#include <ATen/core/Tensor.h>

#include <utility>

namespace ait::inline v0 {

NamedTensors::NamedTensors() = default;
NamedTensors::~NamedTensors() = default;
NamedTensors::NamedTensors(const NamedTensors&) = default;
NamedTensors::NamedTensors(NamedTensors&&) noexcept = default;
NamedTensors& NamedTensors::operator=(const NamedTensors&) = default;
NamedTensors& NamedTensors::operator=(NamedTensors&&) noexcept = default;

void NamedTensors::Add(std::string name, const at::Tensor& tensor) {
  names_.push_back(std::move(name));
  tensors_.push_back(tensor);
}

const at::Tensor& NamedTensors::tensor(std::size_t i) const { return tensors_[i]; }

}  // namespace ait::inline v0
