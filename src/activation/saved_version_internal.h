// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_SAVED_VERSION_INTERNAL_H_
#define AIT_ACTIVATION_SAVED_VERSION_INTERNAL_H_

// The check that libtorch leaves to whoever has hooks: that a tensor has not been changed in place
// since it was saved. Keeps the tensor's counter and not its memory.
//
//   const SavedVersion version(tensor);        // at Save
//   version.Check();                           // at Restore; throws c10::Error

#include <string>

#include "tensor/torch_internal.h"
// Keep the order.
#include <torch/csrc/autograd/variable.h>

#include "ait/base/status.h"

namespace ait::inline v0::internal {

class SavedVersion {
 public:
  explicit SavedVersion(const at::Tensor& tensor)
      : counter_(torch::autograd::impl::version_counter(tensor)),
        saved_(counter_.current_version()) {}

  std::uint32_t saved() const { return saved_; }
  std::uint32_t now() const { return counter_.current_version(); }
  bool changed() const { return now() != saved_; }
  /// As if it were saved now.
  void Renew() { saved_ = now(); }

  /// `sizes` and `type` are for the message.
  void Check(at::IntArrayRef sizes, at::ScalarType type) const {
    TORCH_CHECK(counter_.current_version() == saved_,
                "a tensor that backward needs has been changed by an in-place operation: ", type,
                " ", sizes, " is at version ", counter_.current_version(), ", expected version ",
                saved_);
  }

 private:
  c10::VariableVersion counter_;
  std::uint32_t saved_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_SAVED_VERSION_INTERNAL_H_
