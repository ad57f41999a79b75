// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_GRADIENT_VIEWS_INTERNAL_H_
#define AIT_PARALLEL_GRADIENT_VIEWS_INTERNAL_H_

// The `.grad` of parameters as views of flat buffers, and what users put in their place.

#include <functional>
#include <string>
#include <vector>

#include "parallel/gradient_store_internal.h"

namespace ait::inline v0::internal {

class GradientViews {
 public:
  /// Makes flat buffers of zeros, and `.grad` of every handle a view of them.
  static StatusOr<GradientViews> Create(const GradientPlan& plan, const MemoryHandle& memory);

  const std::vector<Buffer>& buffers() const { return buffers_; }
  std::int64_t bytes() const;
  const at::Tensor& view(std::size_t h) const { return views_[h]; }

  /// Makes `.grad` the view. Returns what stood there: the view, also if it was there by another
  /// name; nothing; or another tensor. **Errors.** InvalidArgument: one of another shape.
  StatusOr<at::Tensor> Restore(std::size_t h);
  /// Whether `.grad` is the view.
  bool IsInPlace(std::size_t h) const;
  /// Makes every `.grad` the view, whatever there is.
  void RestoreAll();

  /// See `GradientStore::KeepReduced`.
  Status Keep(const std::function<bool(int owner)>& in_reduction);

 private:
  GradientViews(ParameterStore& store, const FlatLayout& layout)
      : store_(&store), layout_(&layout) {}

  ParameterStore* store_;
  const FlatLayout* layout_;
  std::vector<at::Tensor> flat_;
  std::vector<Buffer> buffers_;
  std::vector<at::Tensor> views_;  // by handle
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_GRADIENT_VIEWS_INTERNAL_H_
