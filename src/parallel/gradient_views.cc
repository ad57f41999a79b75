// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradient_views_internal.h"

#include <c10/core/GradMode.h>

#include <utility>

#include "parallel/flat_tensor_internal.h"

namespace ait::inline v0::internal {
namespace {

// "[3, 5]"
std::string ShapeText(const at::Tensor& tensor) {
  std::string text;
  for (const std::int64_t size : tensor.sizes()) text += StrCat(text.empty() ? "" : ", ", size);
  return StrCat("[", text, "]");
}

// `detach()` of the view, for instance: another tensor, the same elements.
bool SameElements(const at::Tensor& a, const at::Tensor& b) {
  return a.layout() == c10::kStrided && a.sizes() == b.sizes() &&
         a.const_data_ptr() == b.const_data_ptr() && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type();
}

}  // namespace

StatusOr<GradientViews> GradientViews::Create(const GradientPlan& plan,
                                              const MemoryHandle& memory) {
  const c10::NoGradGuard no_grad;
  GradientViews views(plan.store, plan.layout);
  for (std::size_t g = 0; g < plan.dtypes.size(); ++g) {
    AIT_ASSIGN_OR_RETURN(at::Tensor flat, MakeFlat(plan.layout.groups()[g].count, plan.dtypes[g],
                                                   memory, "gradients"));
    views.buffers_.push_back(BufferOf(flat, plan.dtypes[g]));
    views.flat_.push_back(std::move(flat));
  }
  for (Handle& handle : plan.store.handles()) {
    const FlatSlot& slot = *plan.layout.slot(handle.owner);
    const auto group = static_cast<std::size_t>(
        plan.layout.buckets()[static_cast<std::size_t>(slot.bucket)].group);
    views.views_.push_back(ViewOf(views.flat_[group],
                                  plan.layout.parameters()[static_cast<std::size_t>(handle.owner)],
                                  slot));
    handle.tensor.mutable_grad() = views.views_.back();
  }
  return views;
}

std::int64_t GradientViews::bytes() const {
  std::int64_t bytes = 0;
  for (const Buffer& buffer : buffers_) bytes += buffer.bytes().value();
  return bytes;
}

bool GradientViews::IsInPlace(std::size_t h) const {
  return store_->handles()[h].tensor.mutable_grad().is_same(views_[h]);
}

StatusOr<at::Tensor> GradientViews::Restore(std::size_t h) {
  const Handle& handle = store_->handles()[h];
  at::Tensor& found = handle.tensor.mutable_grad();
  const at::Tensor& view = views_[h];
  if (found.is_same(view)) return view;
  if (found.defined() && found.sizes() != view.sizes()) {
    return InvalidArgumentError("the gradient that was given to parameter ",
                                layout_->parameters()[static_cast<std::size_t>(handle.owner)].name,
                                " has the shape ", ShapeText(found), ", but the parameter has ",
                                ShapeText(view), "; give one of the same shape");
  }
  at::Tensor stray = std::exchange(found, view);
  if (stray.defined() && SameElements(stray, view)) return view;
  return stray;
}

void GradientViews::RestoreAll() {
  for (std::size_t h = 0; h < views_.size(); ++h) {
    at::Tensor& found = store_->handles()[h].tensor.mutable_grad();
    if (!found.is_same(views_[h])) found = views_[h];
  }
}

Status GradientViews::Keep(const std::function<bool(int owner)>& in_reduction) {
  for (std::size_t h = 0; h < views_.size(); ++h) {
    const Handle& handle = store_->handles()[h];
    at::Tensor& found = handle.tensor.mutable_grad();
    if (found.is_same(views_[h]) || !in_reduction(handle.owner)) continue;
    if (found.defined() && !SameElements(found, views_[h])) {
      return FailedPreconditionError(
          "the gradient of parameter ",
          layout_->parameters()[static_cast<std::size_t>(handle.owner)].name,
          " was replaced while it was being reduced; change gradients between FinishGradients and "
          "Update");
    }
    found = views_[h];
  }
  return OkStatus();
}

}  // namespace ait::inline v0::internal
