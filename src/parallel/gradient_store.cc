// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradient_store_internal.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "parallel/flat_tensor_internal.h"
#include "tensor/catch.h"

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

StatusOr<std::unique_ptr<GradientStore>> GradientStore::Create(ParameterStore& store,
                                                               const FlatLayout& layout,
                                                               MemoryHandle memory) {
  const c10::NoGradGuard no_grad;
  auto gradients = std::unique_ptr<GradientStore>(new GradientStore(store, layout));
  for (const FlatGroup& group : layout.groups()) {
    AIT_ASSIGN_OR_RETURN(at::Tensor flat, MakeFlat(group.count, group.dtype, memory, "gradients"));
    gradients->buffers_.push_back(BufferOf(flat, group.dtype));
    gradients->flat_.push_back(std::move(flat));
  }
  for (Handle& handle : store.handles()) {
    const auto owner = static_cast<std::size_t>(handle.owner);
    const FlatSlot& slot = *layout.slot(handle.owner);
    const auto group =
        static_cast<std::size_t>(layout.buckets()[static_cast<std::size_t>(slot.bucket)].group);
    gradients->views_.push_back(ViewOf(gradients->flat_[group], layout.parameters()[owner], slot));
    handle.tensor.mutable_grad() = gradients->views_.back();
  }
  gradients->current_.resize(layout.parameters().size());
  gradients->touched_.resize(layout.parameters().size());
  return gradients;
}

const std::string& GradientStore::NameOf(std::size_t h) const {
  return layout_.parameters()[OwnerOf(h)].name;
}

void GradientStore::Forget() {
  std::ranges::fill(current_, 0);
  for (std::size_t h = 0; h < views_.size(); ++h) {
    at::Tensor& found = store_.handles()[h].tensor.mutable_grad();
    if (!found.is_same(views_[h])) found = views_[h];
  }
}

Status GradientStore::BeginMicroStep() {
  std::ranges::fill(touched_, 0);
  for (std::size_t h = 0; h < views_.size(); ++h) AIT_RETURN_IF_ERROR(RestoreView(h));
  std::ranges::fill(touched_, 0);
  return OkStatus();
}

Status GradientStore::RestoreView(std::size_t h) {
  at::Tensor& found = store_.handles()[h].tensor.mutable_grad();
  const at::Tensor& view = views_[h];
  if (found.is_same(view)) return OkStatus();
  if (found.defined() && found.sizes() != view.sizes()) {
    return InvalidArgumentError("the gradient that was given to parameter ", NameOf(h),
                                " has the shape ", ShapeText(found), ", but the parameter has ",
                                ShapeText(view), "; give one of the same shape");
  }
  const at::Tensor stray = std::exchange(found, view);
  const char touched = touched_[OwnerOf(h)];
  if (!stray.defined()) {
    // Another tensor of the same tied parameter may have brought its gradient already.
    if (touched == 0) current_[OwnerOf(h)] = 0;
    return OkStatus();
  }
  if (SameElements(stray, view)) return OkStatus();
  if (touched == 0) current_[OwnerOf(h)] = 0;
  const bool overlaps = stray.layout() == c10::kStrided && stray.is_alias_of(view);
  return Accumulate(h, overlaps ? stray.detach().clone() : stray);
}

Status GradientStore::Accumulate(std::size_t h, const at::Tensor& gradient) {
  const c10::NoGradGuard no_grad;
  AIT_RETURN_IF_ERROR(RestoreView(h));
  const at::Tensor& view = views_[h];
  char& current = current_[OwnerOf(h)];
  if (current != 0) {
    view.add_(gradient);
  } else if (gradient.layout() == c10::kStrided) {
    view.copy_(gradient);
  } else {
    view.zero_().add_(gradient);
  }
  current = 1;
  touched_[OwnerOf(h)] = 1;
  return OkStatus();
}

Status GradientStore::Complete() {
  Status first;
  for (std::size_t h = 0; h < views_.size(); ++h) {
    const Status status = CatchAsStatus([&] { return RestoreView(h); });
    if (first.ok()) first = status;
  }
  for (std::size_t g = 0; g < buffers_.size(); ++g) {
    for (const FlatSlot& slot : layout_.groups()[g].slots) {
      char& current = current_[static_cast<std::size_t>(slot.parameter)];
      if (current == 0 && slot.count > 0) {
        const Buffer missing = buffers_[g].Slice(slot.offset, slot.count);
        std::memset(missing.data, 0, static_cast<std::size_t>(missing.bytes().value()));
      }
      current = 1;
    }
  }
  return first;
}

Status GradientStore::Adopt() {
  for (std::size_t h = 0; h < views_.size(); ++h) {
    touched_[OwnerOf(h)] = 0;
    AIT_RETURN_IF_ERROR(RestoreView(h));
  }
  return Complete();
}

Status GradientStore::KeepReduced(const std::function<bool(int owner)>& in_reduction) {
  for (std::size_t h = 0; h < views_.size(); ++h) {
    const Handle& handle = store_.handles()[h];
    at::Tensor& found = handle.tensor.mutable_grad();
    if (found.is_same(views_[h]) || !in_reduction(handle.owner)) continue;
    if (found.defined() && !SameElements(found, views_[h])) {
      return FailedPreconditionError("the gradient of parameter ", NameOf(h),
                                     " was replaced while it was being reduced; change gradients "
                                     "between FinishGradients and Update");
    }
    found = views_[h];
  }
  return OkStatus();
}

}  // namespace ait::inline v0::internal
