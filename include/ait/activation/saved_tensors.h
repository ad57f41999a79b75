// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_SAVED_TENSORS_H_
#define AIT_ACTIVATION_SAVED_TENSORS_H_

// What becomes of the tensors that autograd saves for backward: the seam on which activation
// checkpointing, offload and compression rest, and on which a policy of your own can.
//
// While a `SavedTensorScope` lives, each tensor that an operation of this thread saves is handed to
// its policy, which gives back what is kept in its stead; backward asks that for the tensor again.
//
//   class Halves final : public SavedTensorPolicy {                     // keeps bf16
//     std::unique_ptr<SavedTensor> Save(const at::Tensor& tensor) override {
//       if (tensor.scalar_type() != at::kFloat) return nullptr;         // kept as it is
//       return std::make_unique<Half>(tensor.to(at::kBFloat16));
//     }
//   };
//   const SavedTensorScope scope(std::make_shared<Halves>());
//   at::Tensor loss = model->forward(inputs);
//
// Scopes nest; the innermost decides alone, and an empty one keeps everything as it is. A tensor
// that is kept as it is may still not be changed in place before backward, and backward says so, as
// libtorch does without hooks.
//
// It works by an autograd engine of our own, which takes the place of libtorch's for the process
// the first time a scope is opened and differs in nothing else. Where Python's torch is loaded, its
// engine has that place and is left there: see `SavedTensorScope::Available`.
//
// **Thread-safety.** A scope belongs to the thread that makes it and ends on the same, in reverse
// order. A policy may be used by several threads if several have scopes with it. `Restore` is called
// on the thread that runs backward, which may be another one.

#include <memory>

#include "ait/base/status.h"

namespace at {
class Tensor;
}

namespace ait::inline v0 {

/// What is kept of one saved tensor. Destroyed when autograd releases the tensor.
class SavedTensor {
 public:
  virtual ~SavedTensor() = default;
  /// The tensor that was saved: the same shape, dtype and device. Called once in each backward
  /// that goes through the operation, so more than once with retain_graph. May throw.
  virtual at::Tensor Restore() = 0;
};

class SavedTensorPolicy {
 public:
  virtual ~SavedTensorPolicy() = default;
  /// Called where an operation saves `tensor`, without its graph. It must not be changed, and is not
  /// to be kept as it is by other means than nullptr, which keeps it. May throw; then so does the
  /// operation.
  virtual std::unique_ptr<SavedTensor> Save(const at::Tensor& tensor) = 0;
  /// Whether `Save` is also asked about parameters: leaves that require a gradient, and views of
  /// them. Where not, they are kept as they are, which costs nothing.
  virtual bool TakesParameters() const { return true; }
};

class [[nodiscard]] SavedTensorScope {
 public:
  /// A null policy is an empty scope. Throws StatusException (ait/base/throw_on_error.h) where
  /// policies are not available.
  explicit SavedTensorScope(std::shared_ptr<SavedTensorPolicy> policy);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

  /// Ok if scopes can be opened in this process. **Errors.** FailedPrecondition: autograd runs on an
  /// engine that is neither libtorch's own nor ours, such as Python's.
  static Status Available();

  /// The policy that holds on this thread now; null if there is none.
  static std::shared_ptr<SavedTensorPolicy> Current();
};

}  // namespace ait::inline v0

#endif  // AIT_ACTIVATION_SAVED_TENSORS_H_
