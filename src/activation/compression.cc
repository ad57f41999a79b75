// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/compression.h"

// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
// clang-format on

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>

#include "activation/saved_version_internal.h"
#include "activation/storage_set_internal.h"
#include "ait/base/simd.h"
#include "optim/block_int8.h"
#include "optim/storage_kernels.h"

namespace ait::inline v0 {
namespace {

constexpr std::int64_t kLeastBlock = 32, kMostBlock = 65536;
constexpr std::int64_t kScaleBytes = sizeof(float);

/// What a compressed tensor is the image of.
struct Shape {
  explicit Shape(const at::Tensor& tensor)
      : sizes(tensor.sizes().vec()), strides(tensor.strides().vec()), options(tensor.options()) {}
  std::vector<std::int64_t> sizes, strides;  // dense
  at::TensorOptions options;

  at::Tensor Empty() const { return at::empty_strided(sizes, strides, options); }
};

/// int8 codes of all elements in the order of memory, then a scale for each block.
class Int8Format {
 public:
  Int8Format(std::int64_t elements, std::int64_t block, at::ScalarType type)
      : elements_(elements), block_(block), type_(type) {}

  at::Tensor Pack(const at::Tensor& tensor) const {
    at::Tensor packed = at::empty({ScalesBegin() + Blocks() * kScaleBytes}, at::kByte);
    auto* const bytes = static_cast<std::byte*>(packed.mutable_data_ptr());
    ForBlocks([&](std::int64_t index, std::int64_t begin, std::span<float> scratch) {
      const std::span<const float> values = Values(tensor, begin, scratch);
      const std::span codes(reinterpret_cast<std::int8_t*>(bytes) + begin, values.size());
      const float scale = internal::Quantise(values, codes, {});
      std::memcpy(bytes + ScalesBegin() + index * kScaleBytes, &scale, kScaleBytes);
    });
    return packed;
  }

  void Unpack(const at::Tensor& packed, const at::Tensor& to) const {
    const auto* const bytes = static_cast<const std::byte*>(packed.const_data_ptr());
    ForBlocks([&](std::int64_t index, std::int64_t begin, std::span<float> scratch) {
      float scale = 0;
      std::memcpy(&scale, bytes + ScalesBegin() + index * kScaleBytes, kScaleBytes);
      const auto* const codes = reinterpret_cast<const std::int8_t*>(bytes) + begin;
      if (type_ == at::kFloat) {
        internal::Dequantise({codes, scratch.size()}, scale,
                             {static_cast<float*>(to.mutable_data_ptr()) + begin, scratch.size()});
        return;
      }
      internal::Dequantise({codes, scratch.size()}, scale, scratch);
      Kernels().narrow_bf16(scratch.data(),
                            static_cast<std::uint16_t*>(to.mutable_data_ptr()) + begin,
                            static_cast<std::int64_t>(scratch.size()));
    });
  }

 private:
  static const internal::StorageKernels& Kernels() {
    return internal::StorageKernelsFor(BestSimdLevel());
  }
  std::int64_t Blocks() const { return (elements_ + block_ - 1) / block_; }
  std::int64_t ScalesBegin() const { return RoundUp(elements_, kScaleBytes); }

  // Elements as fp32; `scratch` has room for them.
  std::span<const float> Values(const at::Tensor& tensor, std::int64_t begin,
                                std::span<float> scratch) const {
    if (type_ == at::kFloat) {
      return {static_cast<const float*>(tensor.const_data_ptr()) + begin, scratch.size()};
    }
    Kernels().widen_bf16(static_cast<const std::uint16_t*>(tensor.const_data_ptr()) + begin,
                         scratch.data(), static_cast<std::int64_t>(scratch.size()));
    return scratch;
  }

  // body(index, first element, scratch of as many floats as the block has elements), in parallel.
  template <typename Body>
  void ForBlocks(const Body& body) const {
    constexpr std::int64_t kElementsOfATask = 1 << 15;
    const std::int64_t grain = std::max<std::int64_t>(1, kElementsOfATask / block_);
    at::parallel_for(0, Blocks(), grain, [&](std::int64_t first, std::int64_t last) {
      std::vector<float> scratch(static_cast<std::size_t>(block_));
      for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t begin = i * block_;
        const auto count = static_cast<std::size_t>(std::min(block_, elements_ - begin));
        body(i, begin, std::span(scratch).first(count));
      }
    });
  }

  std::int64_t elements_;
  std::int64_t block_;
  at::ScalarType type_;
};

/// A compressed tensor, kept or given to the next policy, for all operations that have saved it.
class Packed {
 public:
  Packed(const at::Tensor& tensor, const ActivationCompressionOptions& options)
      : Packed(tensor, Dense(tensor), options) {}
  Packed(const at::Tensor& tensor, const at::Tensor& dense,
         const ActivationCompressionOptions& options)
      : identity_(tensor.storage().getWeakStorageImpl()),
        offset_(tensor.storage_offset()),
        sizes_(tensor.sizes().vec()),
        strides_(tensor.strides().vec()),
        version_(static_cast<std::uint32_t>(tensor._version())),
        shape_(dense),
        format_(options.format),
        int8_(tensor.numel(), options.block, tensor.scalar_type()) {
    kept_ = format_ == SavedFormat::kInt8 ? int8_.Pack(dense) : dense.to(at::kBFloat16);
    bytes_ = static_cast<std::int64_t>(kept_.nbytes());
    if (options.then != nullptr) next_ = options.then->Save(kept_);
    if (next_ != nullptr) kept_ = at::Tensor();
  }

  bool IsOf(const at::Tensor& tensor) const {
    return offset_ == tensor.storage_offset() && tensor.sizes() == sizes_ &&
           tensor.strides() == strides_ && version_ == tensor._version() &&
           shape_.options.dtype() == tensor.dtype();
  }

  at::Tensor Unpack() {
    const at::Tensor packed = Get();
    at::Tensor tensor = shape_.Empty();
    if (format_ == SavedFormat::kInt8) {
      int8_.Unpack(packed, tensor);
    } else {
      tensor.copy_(packed);
    }
    return tensor;
  }

  const c10::StorageImpl* identity() const { return identity_._unsafe_get_target(); }
  std::int64_t bytes() const { return bytes_; }

 private:
  static at::Tensor Dense(const at::Tensor& tensor) {
    return tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  }
  at::Tensor Get() {
    if (next_ == nullptr) return kept_;
    const std::lock_guard lock(mutex_);  // a policy is asked by one thread at a time
    return next_->Restore();
  }

  const c10::weak_intrusive_ptr<c10::StorageImpl> identity_;
  const std::int64_t offset_;
  const std::vector<std::int64_t> sizes_, strides_;
  const std::uint32_t version_;
  const Shape shape_;
  const SavedFormat format_;
  const Int8Format int8_;
  std::int64_t bytes_ = 0;
  at::Tensor kept_;
  std::mutex mutex_;
  std::unique_ptr<SavedTensor> next_;
};

/// Compressed tensors that are alive, by the storage that they are of.
class KnownPacked {
 public:
  std::shared_ptr<Packed> Find(const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    const auto [begin, end] = known_.equal_range(tensor.storage().unsafeGetStorageImpl());
    for (auto entry = begin; entry != end; ++entry) {
      auto packed = entry->second.lock();
      if (packed != nullptr && packed->IsOf(tensor)) return packed;
    }
    return nullptr;
  }
  void Add(const std::shared_ptr<Packed>& packed) {
    const std::lock_guard lock(mutex_);
    known_.emplace(packed->identity(), packed);
  }
  /// Called with the last tensor that has it.
  void Remove(std::shared_ptr<Packed> packed) {
    const std::lock_guard lock(mutex_);
    const auto [begin, end] = known_.equal_range(packed->identity());
    for (auto entry = begin; entry != end; ++entry) {
      if (entry->second.lock() != packed) continue;
      if (packed.use_count() == 1) known_.erase(entry);
      return;
    }
  }

 private:
  std::mutex mutex_;
  std::unordered_multimap<const c10::StorageImpl*, std::weak_ptr<Packed>> known_;
};

class Compressed final : public SavedTensor {
 public:
  Compressed(std::shared_ptr<KnownPacked> known, std::shared_ptr<Packed> packed,
             const at::Tensor& tensor)
      : known_(std::move(known)),
        packed_(std::move(packed)),
        version_(tensor),
        sizes_(tensor.sizes().vec()),
        type_(tensor.scalar_type()) {}
  ~Compressed() override { known_->Remove(std::move(packed_)); }

  at::Tensor Restore() override {
    const at::NoGradGuard no_grad;
    version_.Check(sizes_, type_);
    return packed_->Unpack();
  }

 private:
  const std::shared_ptr<KnownPacked> known_;
  std::shared_ptr<Packed> packed_;
  const internal::SavedVersion version_;
  const std::vector<std::int64_t> sizes_;
  const at::ScalarType type_;
};

}  // namespace

struct ActivationCompression::Impl {
  ActivationCompressionOptions options;
  internal::StorageSet exact;
  const std::shared_ptr<KnownPacked> known = std::make_shared<KnownPacked>();
  std::atomic<std::int64_t> saved = 0, compressed = 0, shared = 0, before = 0, after = 0;

  bool Takes(const at::Tensor& tensor) const {
    const auto type = tensor.scalar_type();
    const bool int8 = options.format == SavedFormat::kInt8;
    if (type != at::kFloat && !(int8 && type == at::kBFloat16)) return false;
    if (tensor.layout() != c10::kStrided || (int8 && !tensor.is_cpu())) return false;
    if (tensor.is_neg() || tensor._is_zerotensor()) return false;
    // An expanded tensor has less memory than elements, maybe less than its compressed form.
    if (tensor.storage().nbytes() < tensor.nbytes()) return false;
    return static_cast<std::int64_t>(tensor.nbytes()) >= options.at_least.value() &&
           tensor.numel() > 0 && !exact.Contains(tensor);
  }
};

Status ActivationCompressionOptions::Validate() const {
  if (block < kLeastBlock || block > kMostBlock) {
    return InvalidArgumentError("compression of saved tensors: ", block,
                                " elements share a scale; give ", kLeastBlock, " to ", kMostBlock);
  }
  if (at_least.value() < 1) {
    return InvalidArgumentError("compression of saved tensors: at_least is ", at_least.value(),
                                " bytes; give 1 or more");
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<ActivationCompression>> ActivationCompression::Create(
    ActivationCompressionOptions options) {
  AIT_RETURN_IF_ERROR(options.Validate());
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  return std::shared_ptr<ActivationCompression>(new ActivationCompression(std::move(impl)));
}

ActivationCompression::ActivationCompression(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ActivationCompression::~ActivationCompression() = default;

void ActivationCompression::KeepExact(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) impl_->exact.Add(tensor);
}

std::unique_ptr<SavedTensor> ActivationCompression::Save(const at::Tensor& tensor) {
  ++impl_->saved;
  if (!impl_->Takes(tensor)) return nullptr;
  ++impl_->compressed;
  auto packed = impl_->known->Find(tensor);
  if (packed != nullptr) {
    ++impl_->shared;
  } else {
    packed = std::make_shared<Packed>(tensor, impl_->options);
    impl_->known->Add(packed);
    impl_->before += static_cast<std::int64_t>(tensor.nbytes());
    impl_->after += packed->bytes();
  }
  return std::make_unique<Compressed>(impl_->known, std::move(packed), tensor);
}

ActivationCompressionStatistics ActivationCompression::statistics() const {
  return {.saved = impl_->saved,
          .compressed = impl_->compressed,
          .shared = impl_->shared,
          .bytes_before = impl_->before,
          .bytes_after = impl_->after};
}

}  // namespace ait::inline v0
