// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/offload.h"

// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <ATen/ops/empty.h>
#include <ATen/ops/set.h>
#include <c10/core/GradMode.h>
// clang-format on

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "activation/offload_range_internal.h"
#include "activation/offload_target_internal.h"
#include "activation/saved_version_internal.h"
#include "activation/storage_set_internal.h"

namespace ait::inline v0 {
namespace {

// Ranges begin where every dtype may, and where vectors do.
constexpr std::int64_t kAlignment = 128;

/// The bytes of its storage that a tensor lies in.
struct Extent {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t used = 0;  // without the gaps
};

Extent ExtentOf(const at::Tensor& tensor) {
  const auto item = static_cast<std::int64_t>(tensor.element_size());
  std::int64_t last = 0, elements = 1;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    last += (tensor.size(i) - 1) * tensor.stride(i);
    if (tensor.stride(i) != 0) elements *= tensor.size(i);
  }
  const std::int64_t begin = tensor.storage_offset() * item;
  return {.begin = begin, .end = begin + (last + 1) * item, .used = elements * item};
}

/// What is moved for a tensor: its storage; of a large one the part that it lies in; nothing if
/// that has more gaps than elements of the tensor.
std::optional<Extent> RangeOf(const at::Tensor& tensor) {
  constexpr std::int64_t kGaps = 4;  // a third of a fused projection is worth moving
  Extent extent = ExtentOf(tensor);
  const auto storage_bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  if (extent.used * kGaps >= storage_bytes) return Extent{0, storage_bytes, extent.used};
  if (extent.used * kGaps < extent.end - extent.begin) return std::nullopt;
  extent.begin -= extent.begin % kAlignment;
  return extent;
}

bool IsPlain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && tensor.has_storage() && !tensor.is_quantized() &&
         !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor() &&
         !tensor.is_inference();
}

}  // namespace

class ActivationOffload::Impl {
 public:
  std::unique_ptr<internal::OffloadMover> mover;
  OffloadOptions options;
  internal::StorageSet resident;
  std::atomic<std::int64_t> saved = 0, small = 0, stayed_resident = 0, unsupported = 0;
};

namespace {

class Offloaded final : public SavedTensor {
 public:
  Offloaded(std::shared_ptr<ActivationOffload::Impl> impl, internal::OffloadedTensor place,
            const at::Tensor& tensor)
      : impl_(std::move(impl)),
        place_(std::move(place)),
        version_(tensor),
        options_(tensor.options()),
        offset_bytes_(tensor.storage_offset() * static_cast<std::int64_t>(tensor.element_size())),
        item_(static_cast<std::int64_t>(tensor.element_size())),
        sizes_(tensor.sizes().begin(), tensor.sizes().end()),
        strides_(tensor.strides().begin(), tensor.strides().end()) {}
  ~Offloaded() override { impl_->mover->Release(place_); }

  at::Tensor Restore() override {
    const at::NoGradGuard no_grad;
    version_.Check(sizes_, options_.dtype().toScalarType());
    const internal::RestoredRange range = impl_->mover->Restore(place_);
    at::Tensor tensor = at::empty({0}, options_);
    tensor.set_(range.storage, (offset_bytes_ - range.begin) / item_, sizes_, strides_);
    return tensor;
  }

 private:
  const std::shared_ptr<ActivationOffload::Impl> impl_;
  const internal::OffloadedTensor place_;
  const internal::SavedVersion version_;
  const at::TensorOptions options_;
  const std::int64_t offset_bytes_;
  const std::int64_t item_;
  const std::vector<std::int64_t> sizes_;
  const std::vector<std::int64_t> strides_;
};

}  // namespace

Status OffloadOptions::Validate() const {
  if (static_cast<bool>(memory) == !directory.empty()) {
    return InvalidArgumentError("offload of saved tensors has ",
                                memory ? "two targets" : "no target",
                                "; give memory or a directory, one of both");
  }
  if (memory && memory.properties().residence == Residence::kDevice) {
    return InvalidArgumentError("offload of saved tensors goes to memory of the host; ",
                                memory.properties().name, " is a device's");
  }
  if (gpus != nullptr && !memory) {
    return InvalidArgumentError("offload of saved tensors of GPUs goes to memory, not to ",
                                directory, "; give pinned memory");
  }
  if (at_least.value() < 1 || in_flight.value() < 0 || ahead.value() < 0) {
    return InvalidArgumentError("offload of saved tensors: at_least is ", at_least.value(),
                                ", in_flight ", in_flight.value(), " and ahead ", ahead.value(),
                                " bytes; at_least is 1 or more, the others 0 or more");
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<ActivationOffload>> ActivationOffload::Create(OffloadOptions options) {
  AIT_RETURN_IF_ERROR(options.Validate());
  std::unique_ptr<internal::OffloadTarget> target;
  if (options.memory) {
    target = internal::MakeMemoryTarget(options.memory);
  } else {
    AIT_ASSIGN_OR_RETURN(target, internal::OpenFileTarget(options.directory));
  }
  auto impl = std::make_shared<Impl>();
  AIT_ASSIGN_OR_RETURN(impl->mover, internal::OffloadMover::Start(options, std::move(target)));
  impl->options = std::move(options);
  return std::shared_ptr<ActivationOffload>(new ActivationOffload(std::move(impl)));
}

ActivationOffload::ActivationOffload(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ActivationOffload::~ActivationOffload() = default;

void ActivationOffload::KeepResident(std::span<const at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) impl_->resident.Add(tensor);
}
void ActivationOffload::KeepResident(const std::vector<at::Tensor>& tensors) {
  KeepResident(std::span<const at::Tensor>(tensors));
}

std::unique_ptr<SavedTensor> ActivationOffload::Save(const at::Tensor& tensor) {
  ++impl_->saved;
  const bool reachable = tensor.is_cpu() || (tensor.is_cuda() && impl_->options.gpus != nullptr);
  if (!IsPlain(tensor) || !reachable) {
    ++impl_->unsupported;
    return nullptr;
  }
  const std::int64_t at_least = impl_->options.at_least.value();
  if (tensor.numel() == 0 || static_cast<std::int64_t>(tensor.storage().nbytes()) < at_least) {
    ++impl_->small;
    return nullptr;
  }
  if (impl_->resident.Contains(tensor)) {
    ++impl_->stayed_resident;
    return nullptr;
  }
  const auto range = RangeOf(tensor);
  if (!range) {
    ++impl_->unsupported;
    return nullptr;
  }
  if (range->end - range->begin < at_least) {
    ++impl_->small;
    return nullptr;
  }
  auto place = impl_->mover->Save(tensor.storage(), range->begin, range->end - range->begin,
                                  static_cast<std::uint32_t>(tensor._version()));
  if (!place) return nullptr;
  return std::make_unique<Offloaded>(impl_, *std::move(place), tensor);
}

OffloadStatistics ActivationOffload::statistics() const {
  OffloadStatistics statistics;
  statistics.saved = impl_->saved;
  statistics.small = impl_->small;
  statistics.resident = impl_->stayed_resident;
  statistics.unsupported = impl_->unsupported;
  impl_->mover->FillStatistics(statistics);
  return statistics;
}

std::string ActivationOffload::Describe() const { return impl_->mover->Describe(); }

}  // namespace ait::inline v0
