// SPDX-License-Identifier: Apache-2.0
#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "parallel/bucket_ring_internal.h"
#include "parallel/flat_tensor_internal.h"
#include "parallel/gradient_convert_internal.h"
#include "parallel/gradient_views_internal.h"

namespace ait::inline v0::internal {
namespace {

// Where the sums add up.
struct Sums {
  std::optional<GradientViews> views;  // of all elements, or
  std::vector<at::Tensor> shards;      // by group: the slices of this rank, one after the other
  std::vector<Buffer> buffers;         // by group, of either
  std::vector<std::int64_t> begins;    // by bucket: where its slice (or it) begins in the buffer
};

class StreamedGradients final : public GradientStore {
 public:
  StreamedGradients(GradientPlan plan, Sums sums, BucketRing ring)
      : plan_(std::move(plan)),
        sums_(std::move(sums)),
        ring_(std::move(ring)),
        has_sum_(plan_.layout.buckets().size()),
        arrived_(plan_.layout.parameters().size()),
        views_(plan_.store.handles().size()) {}

  void Forget() override {
    std::ranges::fill(has_sum_, 0);
    if (sums_.views) return sums_.views->RestoreAll();
    for (Handle& handle : plan_.store.handles()) handle.tensor.mutable_grad().reset();
  }

  Status BeginMicroStep() override {
    for (std::size_t h = 0; h < plan_.store.handles().size(); ++h) {
      AIT_RETURN_IF_ERROR(Refuse(h, "its gradients are reduced in every micro-step"));
    }
    return OkStatus();
  }

  Status Accumulate(std::size_t h, const at::Tensor& gradient) override {
    const c10::NoGradGuard no_grad;
    const int owner = plan_.store.handles()[h].owner;
    const FlatSlot& slot = *plan_.layout.slot(owner);
    if (slot.count == 0) return OkStatus();
    AIT_RETURN_IF_ERROR(Open(slot.bucket));
    View& view = views_[h];
    if (view.place != ring_.place(slot.bucket)) {
      FlatSlot in_bucket = slot;
      in_bucket.offset -= bucket(slot.bucket).begin;
      view.tensor = ViewOf(ring_.tensor(slot.bucket),
                           plan_.layout.parameters()[static_cast<std::size_t>(owner)], in_bucket);
      view.place = ring_.place(slot.bucket);
    }
    char& arrived = arrived_[static_cast<std::size_t>(owner)];
    if (arrived != 0) {
      view.tensor.add_(gradient);
    } else if (gradient.layout() == c10::kStrided) {
      view.tensor.copy_(gradient);
    } else {
      view.tensor.zero_().add_(gradient);
    }
    arrived = 1;
    return OkStatus();
  }

  Status Complete() override { return OkStatus(); }

  Status Adopt() override {
    for (std::size_t h = 0; h < plan_.store.handles().size(); ++h) {
      if (!sums_.views) {
        AIT_RETURN_IF_ERROR(Refuse(h, "gradients are sharded"));
        continue;
      }
      if (sums_.views->IsInPlace(h)) continue;
      AIT_ASSIGN_OR_RETURN(const at::Tensor stray, sums_.views->Restore(h));
      const at::Tensor& view = sums_.views->view(h);
      const c10::NoGradGuard no_grad;
      if (!stray.defined()) {
        view.zero_();
      } else if (!stray.is_same(view)) {
        const bool overlaps = stray.layout() == c10::kStrided && stray.is_alias_of(view);
        view.zero_().add_(overlaps ? stray.detach().clone() : stray);
      }
    }
    return OkStatus();
  }

  Status KeepReduced(const std::function<bool(int owner)>& in_reduction) override {
    return sums_.views ? sums_.views->Keep(in_reduction) : OkStatus();
  }

  StatusOr<Buffer> Wire(int b) override {
    if (bucket(b).count == 0) return Buffer{nullptr, 0, WireDType(b)};
    AIT_RETURN_IF_ERROR(Open(b));
    const Buffer whole = ring_.buffer(b);
    for (const int parameter : bucket(b).parameters) {
      char& arrived = arrived_[static_cast<std::size_t>(parameter)];
      const FlatSlot& slot = *plan_.layout.slot(parameter);
      if (arrived == 0) SetZero(whole.Slice(slot.offset - bucket(b).begin, slot.count));
      arrived = 0;
    }
    return NarrowInPlace(whole, WireDType(b));
  }

  // The first sum of a step goes to its place at once, if it has the dtype.
  Buffer Output(int b, const Buffer& wire) override {
    if (IsFinal(b)) return Owned(b);
    const auto [begin, end] = bucket(b).slice(plan_.rank);
    return wire.Slice(begin - bucket(b).begin, end - begin);
  }

  bool IsFinal(int b) const override {
    return plan_.scattered && !HasSum(b) && WireDType(b) == SumDType(b);
  }

  void Reduced(int b) override {
    if (bucket(b).count == 0) return;
    if (!IsFinal(b)) {
      const Buffer wire{ring_.buffer(b).data, bucket(b).count, WireDType(b)};
      const Buffer from = plan_.scattered ? Output(b, wire) : wire;
      const Buffer to = plan_.scattered ? Owned(b) : All(b);
      if (HasSum(b)) {
        AddWidened(from, to);
      } else {
        Widen(from, to);
      }
    }
    has_sum_[static_cast<std::size_t>(b)] = 1;
    ring_.Close(b);
  }

  Buffer Owned(int b) const override {
    const auto [begin, end] = bucket(b).slice(plan_.rank);
    const std::int64_t skip = sums_.views ? begin - bucket(b).begin : 0;
    return Group(b).Slice(sums_.begins[static_cast<std::size_t>(b)] + skip, end - begin);
  }

  Buffer Whole(std::size_t group) const override { return sums_.buffers[group]; }

  std::int64_t gradient_bytes() const override {
    std::int64_t bytes = 0;
    for (const Buffer& buffer : sums_.buffers) bytes += buffer.bytes().value();
    return bytes;
  }
  std::int64_t bucket_bytes() const override { return ring_.bytes(); }

 private:
  // Where the gradient of a handle goes: a view of the place in the ring that its bucket last had.
  struct View {
    int place = -1;
    at::Tensor tensor;
  };

  const FlatBucket& bucket(int b) const {
    return plan_.layout.buckets()[static_cast<std::size_t>(b)];
  }
  const Buffer& Group(int b) const {
    return sums_.buffers[static_cast<std::size_t>(bucket(b).group)];
  }
  Buffer All(int b) const { return Group(b).Slice(bucket(b).begin, bucket(b).count); }
  DType WireDType(int b) const { return plan_.wire[static_cast<std::size_t>(bucket(b).group)]; }
  DType SumDType(int b) const { return plan_.dtypes[static_cast<std::size_t>(bucket(b).group)]; }
  bool HasSum(int b) const { return has_sum_[static_cast<std::size_t>(b)] != 0; }

  // The place may have held another bucket: what lies between parameters becomes zero.
  Status Open(int b) {
    if (ring_.IsOpen(b)) return OkStatus();
    AIT_RETURN_IF_ERROR(ring_.Open(b));
    SetPaddingZero(plan_.layout, b, ring_.buffer(b));
    return OkStatus();
  }

  // A gradient in the place where none is looked for.
  Status Refuse(std::size_t h, const char* why) const {
    const Handle& handle = plan_.store.handles()[h];
    const at::Tensor& found = handle.tensor.mutable_grad();
    if (!found.defined() || (sums_.views && sums_.views->IsInPlace(h))) return OkStatus();
    return FailedPreconditionError(
        "parameter ", plan_.layout.parameters()[static_cast<std::size_t>(handle.owner)].name,
        " was given a gradient by hand, but ", why,
        "; leave .grad alone, or use ReduceWhen::kOnce, which looks there in every stage, "
        "kGradients and kParameters too");
  }

  GradientPlan plan_;
  Sums sums_;
  BucketRing ring_;
  std::vector<char> has_sum_;  // by bucket: its sum holds something of this step
  std::vector<char> arrived_;  // by parameter: its place in the ring holds its gradient
  std::vector<View> views_;    // by handle
};

StatusOr<Sums> MakeSums(const GradientPlan& plan, bool packed) {
  Sums sums;
  const std::vector<FlatBucket>& buckets = plan.layout.buckets();
  if (!packed) {
    AIT_ASSIGN_OR_RETURN(sums.views, GradientViews::Create(plan, plan.memory));
    sums.buffers = sums.views->buffers();
    for (const FlatBucket& bucket : buckets) sums.begins.push_back(bucket.begin);
    return sums;
  }
  std::vector<std::int64_t> counts(plan.dtypes.size());
  for (const FlatBucket& bucket : buckets) {
    std::int64_t& count = counts[static_cast<std::size_t>(bucket.group)];
    sums.begins.push_back(count);
    count += bucket.slice_counts[static_cast<std::size_t>(plan.rank.value())];
  }
  for (std::size_t g = 0; g < counts.size(); ++g) {
    AIT_ASSIGN_OR_RETURN(at::Tensor shard,
                         MakeFlat(counts[g], plan.dtypes[g], plan.memory, "gradient shards"));
    sums.buffers.push_back(BufferOf(shard, plan.dtypes[g]));
    sums.shards.push_back(std::move(shard));
  }
  for (Handle& handle : plan.store.handles()) handle.tensor.mutable_grad().reset();
  return sums;
}

}  // namespace

StatusOr<std::unique_ptr<GradientStore>> MakeStreamedGradients(
    GradientPlan plan, bool packed, std::function<StatusOr<bool>()> make_room) {
  AIT_ASSIGN_OR_RETURN(Sums sums, MakeSums(plan, packed));
  AIT_ASSIGN_OR_RETURN(BucketRing ring, BucketRing::Create(plan.layout, plan.dtypes, plan.memory,
                                                           std::move(make_room)));
  return std::unique_ptr<GradientStore>(
      std::make_unique<StreamedGradients>(std::move(plan), std::move(sums), std::move(ring)));
}

}  // namespace ait::inline v0::internal
