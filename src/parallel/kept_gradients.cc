// SPDX-License-Identifier: Apache-2.0
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "parallel/gradient_convert_internal.h"
#include "parallel/gradient_views_internal.h"
#include "tensor/catch.h"

namespace ait::inline v0::internal {
namespace {

class KeptGradients final : public GradientStore {
 public:
  KeptGradients(GradientPlan plan, GradientViews views)
      : plan_(std::move(plan)),
        views_(std::move(views)),
        current_(plan_.layout.parameters().size()),
        touched_(plan_.layout.parameters().size()) {}

  void Forget() override {
    std::ranges::fill(current_, 0);
    views_.RestoreAll();
  }

  Status BeginMicroStep() override {
    std::ranges::fill(touched_, 0);
    for (std::size_t h = 0; h < handles(); ++h) AIT_RETURN_IF_ERROR(RestoreView(h));
    std::ranges::fill(touched_, 0);
    return OkStatus();
  }

  // The first gradient of a step is copied, so that nothing has to be zeroed in between.
  Status Accumulate(std::size_t h, const at::Tensor& gradient) override {
    const c10::NoGradGuard no_grad;
    AIT_RETURN_IF_ERROR(RestoreView(h));
    const at::Tensor& view = views_.view(h);
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

  Status Complete() override {
    Status first;
    for (std::size_t h = 0; h < handles(); ++h) {
      const Status status = CatchAsStatus([&] { return RestoreView(h); });
      if (first.ok()) first = status;
    }
    for (std::size_t g = 0; g < views_.buffers().size(); ++g) {
      for (const FlatSlot& slot : plan_.layout.groups()[g].slots) {
        char& current = current_[static_cast<std::size_t>(slot.parameter)];
        if (current == 0) SetZero(views_.buffers()[g].Slice(slot.offset, slot.count));
        current = 1;
      }
    }
    return first;
  }

  Status Adopt() override {
    for (std::size_t h = 0; h < handles(); ++h) {
      touched_[OwnerOf(h)] = 0;
      AIT_RETURN_IF_ERROR(RestoreView(h));
    }
    return Complete();
  }

  Status KeepReduced(const std::function<bool(int owner)>& in_reduction) override {
    return views_.Keep(in_reduction);
  }

  // What was narrowed and not widened again, being of others, has left its bits in the padding.
  StatusOr<Buffer> Wire(int b) override {
    const Buffer whole = Whole(bucket(b));
    if (!IsFinal(b)) SetPaddingZero(plan_.layout, b, whole);
    return NarrowInPlace(whole, WireDType(b));
  }

  Buffer Output(int b, const Buffer& wire) override {
    const auto [begin, end] = bucket(b).slice(plan_.rank);
    return wire.Slice(begin - bucket(b).begin, end - begin);
  }

  bool IsFinal(int b) const override { return WireDType(b) == Group(b).dtype; }

  void Reduced(int b) override {
    if (IsFinal(b)) return;
    const Buffer whole = Whole(bucket(b));
    const Buffer wire{whole.data, whole.count, WireDType(b)};
    if (plan_.scattered) {
      Widen(Output(b, wire), Owned(b));
    } else {
      Widen(wire, whole);
    }
  }

  Buffer Owned(int b) const override {
    const auto [begin, end] = bucket(b).slice(plan_.rank);
    return Group(b).Slice(begin, end - begin);
  }

  Buffer Whole(std::size_t group) const override { return views_.buffers()[group]; }
  std::int64_t gradient_bytes() const override { return views_.bytes(); }
  std::int64_t bucket_bytes() const override { return 0; }

 private:
  std::size_t handles() const { return plan_.store.handles().size(); }
  std::size_t OwnerOf(std::size_t h) const {
    return static_cast<std::size_t>(plan_.store.handles()[h].owner);
  }
  const FlatBucket& bucket(int b) const {
    return plan_.layout.buckets()[static_cast<std::size_t>(b)];
  }
  const Buffer& Group(int b) const {
    return views_.buffers()[static_cast<std::size_t>(bucket(b).group)];
  }
  Buffer Whole(const FlatBucket& bucket) const {
    return views_.buffers()[static_cast<std::size_t>(bucket.group)].Slice(bucket.begin,
                                                                          bucket.count);
  }
  DType WireDType(int b) const { return plan_.wire[static_cast<std::size_t>(bucket(b).group)]; }

  Status RestoreView(std::size_t h) {
    if (views_.IsInPlace(h)) return OkStatus();
    AIT_ASSIGN_OR_RETURN(const at::Tensor stray, views_.Restore(h));
    if (stray.is_same(views_.view(h))) return OkStatus();
    // Another tensor of the same tied parameter may have brought its gradient already.
    if (touched_[OwnerOf(h)] == 0) current_[OwnerOf(h)] = 0;
    if (!stray.defined()) return OkStatus();
    const bool overlaps = stray.layout() == c10::kStrided && stray.is_alias_of(views_.view(h));
    return Accumulate(h, overlaps ? stray.detach().clone() : stray);
  }

  GradientPlan plan_;
  GradientViews views_;
  std::vector<char> current_;  // by parameter: its slot holds a gradient of this step
  std::vector<char> touched_;  // by parameter: it was written in this micro-step
};

}  // namespace

StatusOr<std::unique_ptr<GradientStore>> MakeKeptGradients(GradientPlan plan) {
  AIT_ASSIGN_OR_RETURN(GradientViews views, GradientViews::Create(plan, plan.memory));
  return std::unique_ptr<GradientStore>(
      std::make_unique<KeptGradients>(std::move(plan), std::move(views)));
}

}  // namespace ait::inline v0::internal
