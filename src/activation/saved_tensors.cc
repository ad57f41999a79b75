// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/saved_tensors.h"

// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
// clang-format on

#include <typeinfo>
#include <utility>
#include <vector>

#include "activation/save_by_internal.h"
#include "activation/saved_version_internal.h"
#include "ait/base/throw_on_error.h"

namespace ait::inline v0 {
namespace {

// Scopes are of a thread, and autograd asks for hooks without an argument to find them by.
std::vector<std::shared_ptr<SavedTensorPolicy>>& Scopes() {
  thread_local std::vector<std::shared_ptr<SavedTensorPolicy>> scopes;
  return scopes;
}

/// A tensor that is kept as it is. libtorch leaves the check of versions to whoever has hooks.
class Unchanged final : public SavedTensor {
 public:
  explicit Unchanged(const at::Tensor& tensor) : tensor_(tensor), version_(tensor) {}
  at::Tensor Restore() override {
    version_.Check(tensor_.sizes(), tensor_.scalar_type());
    return tensor_;
  }

 private:
  const at::Tensor tensor_;
  const internal::SavedVersion version_;
};

class Hooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Hooks(std::shared_ptr<SavedTensorPolicy> policy) : policy_(std::move(policy)) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    // Without its graph, which would keep itself alive; the counter of versions stays shared.
    const at::Tensor detached = tensor.detach();
    saved_ = internal::SaveBy(*policy_, tensor, detached);
    if (saved_ == nullptr) saved_ = std::make_unique<Unchanged>(detached);
    policy_.reset();
  }
  at::Tensor call_unpack_hook() override { return saved_->Restore(); }

 private:
  std::shared_ptr<SavedTensorPolicy> policy_;  // until Save
  std::unique_ptr<SavedTensor> saved_;
};

class HookEngine final : public torch::autograd::Engine {
 public:
  // Never destroyed: its threads, if it has started any, live to the end of the process.
  static torch::autograd::Engine& Instance() {
    static auto* const engine = new HookEngine;
    return *engine;
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    const auto& scopes = Scopes();
    if (scopes.empty() || scopes.back() == nullptr) return nullptr;
    return std::make_unique<Hooks>(scopes.back());
  }

 private:
  HookEngine() = default;
};

bool IsParameter(const at::Tensor& tensor) {
  const at::TensorBase& base = tensor.is_view() ? tensor._base() : tensor;
  return base.is_leaf() && base.requires_grad();
}

}  // namespace

std::unique_ptr<SavedTensor> internal::SaveBy(SavedTensorPolicy& policy, const at::Tensor& tensor,
                                              const at::Tensor& detached) {
  if (!policy.TakesParameters() && IsParameter(tensor)) return nullptr;
  return policy.Save(detached);
}

Status SavedTensorScope::Available() {
  torch::autograd::Engine& engine = torch::autograd::Engine::get_default_engine();
  if (typeid(engine) == typeid(HookEngine)) return OkStatus();
  if (typeid(engine) != typeid(torch::autograd::Engine)) {
    return FailedPreconditionError(
        "saved tensors cannot be handed to a policy: autograd runs on the engine ",
        typeid(engine).name(),
        ", which is not libtorch's own; Python's torch, where it is loaded, brings one that is "
        "left in its place");
  }
  torch::autograd::set_default_engine_stub(&HookEngine::Instance);
  return OkStatus();
}

std::shared_ptr<SavedTensorPolicy> SavedTensorScope::Current() {
  const auto& scopes = Scopes();
  return scopes.empty() ? nullptr : scopes.back();
}

SavedTensorScope::SavedTensorScope(std::shared_ptr<SavedTensorPolicy> policy) {
  if (policy != nullptr) ThrowOnError(Available());
  Scopes().push_back(std::move(policy));
}

SavedTensorScope::~SavedTensorScope() { Scopes().pop_back(); }

}  // namespace ait::inline v0
