// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_NAMED_TENSOR_H_
#define AIT_PARALLEL_NAMED_TENSOR_H_

// `NamedTensors`: tensors with their names, in registration order; what an engine is made of.
//
// A model of torch::nn gives its own by `NamedParameters` and `NamedBuffers` of
// ait/parallel/module.h, the one header of this component that includes libtorch. A program with
// tensors and no modules adds them one by one:
//
//   NamedTensors parameters;
//   parameters.Add("weight", weight);       // the same tensor, not a copy
//   parameters.Add("bias", bias);
//
// **Thread-safety.** As a std::vector.

#include <cstddef>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace ait::inline v0 {

class NamedTensors {
 public:
  NamedTensors();
  ~NamedTensors();
  NamedTensors(const NamedTensors&);
  NamedTensors(NamedTensors&&) noexcept;
  NamedTensors& operator=(const NamedTensors&);
  NamedTensors& operator=(NamedTensors&&) noexcept;

  void Add(std::string name, const at::Tensor& tensor);

  std::size_t size() const { return names_.size(); }
  bool empty() const { return names_.empty(); }
  const std::string& name(std::size_t i) const { return names_[i]; }
  const at::Tensor& tensor(std::size_t i) const;

 private:
  std::vector<std::string> names_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_NAMED_TENSOR_H_
