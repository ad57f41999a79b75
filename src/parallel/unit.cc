// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/unit.h"

// The tensor first.
#include "tensor/torch_internal.h"
// Keep the order.
#include <ATen/SequenceNumber.h>
#include <c10/core/GradMode.h>

#include <vector>

#include "ait/base/throw_on_error.h"
#include "parallel/data_parallel_impl.h"
#include "parallel/unit_store_internal.h"
#include "tensor/catch.h"

namespace ait::inline v0::internal {

struct UnitCall::Results {
  std::vector<at::Tensor> tensors;
  std::uint64_t first_node = 0;
};

UnitCall::UnitCall(DataParallel& engine, std::string_view name) {
  DataParallel::Impl& impl = *engine.impl_;
  unit_ = ThrowOnError(impl.FindUnit(name));
  if (unit_ < 0) return;
  ThrowOnError(CatchAsStatus([&] { return impl.EnterUnit(unit_); }));
  target_ = impl.units()->target();
  epoch_ = target_->epoch;
  if (!c10::GradMode::is_enabled()) return;
  results_ = std::make_unique<Results>();
  results_->first_node = at::sequence_number::peek();
}

UnitCall::~UnitCall() {
  // The function may have ended the step, which ends all uses, or the engine.
  if (target_ == nullptr || target_->store == nullptr || target_->epoch != epoch_) return;
  target_->store->Leave(unit_);
}

void UnitCall::Add(const at::Tensor& result) {
  if (results_ != nullptr) results_->tensors.push_back(result);
}

void UnitCall::Watch() {
  if (results_ == nullptr || target_->store == nullptr) return;
  target_->store->Watch(unit_, results_->tensors, results_->first_node);
}

}  // namespace ait::inline v0::internal
