// SPDX-License-Identifier: Apache-2.0
#include "parallel/parameter_store_internal.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "ait/tensor/dtype.h"
#include "parallel/flat_tensor_internal.h"

namespace ait::inline v0::internal {
namespace {

std::vector<std::int64_t> ToVector(at::IntArrayRef numbers) { return numbers.vec(); }

// Where a tensor lies: [begin, end) in bytes, a hull over its elements.
struct Extent {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  int parameter = 0;
};

Extent ExtentOf(const at::Tensor& tensor, int parameter) {
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return {begin, begin + static_cast<std::uintptr_t>(last + 1) * tensor.element_size(), parameter};
}

Status CheckTensor(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) return InvalidArgumentError("parameter ", name, " is undefined");
  if (tensor.layout() != c10::kStrided) {
    return InvalidArgumentError("parameter ", name, " is sparse; only dense ones can be trained");
  }
  if (!tensor.device().is_cpu()) {
    return UnimplementedError("parameter ", name, " is on ", tensor.device().str(),
                              "; only host memory is supported so far");
  }
  if (!tensor.is_leaf()) {
    return InvalidArgumentError("parameter ", name,
                                " is the result of a computation; give leaves, detach() makes one");
  }
  return OkStatus();
}

std::vector<std::int64_t> ContiguousStrides(const at::Tensor& tensor) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(tensor.dim()));
  std::int64_t stride = 1;
  for (std::int64_t d = tensor.dim(); d-- > 0;) {
    strides[static_cast<std::size_t>(d)] = stride;
    stride *= std::max<std::int64_t>(1, tensor.size(d));
  }
  return strides;
}

ParameterInfo InfoOf(const std::string& name, const at::Tensor& tensor, DType dtype) {
  return {.name = name,
          .dtype = dtype,
          .device = tensor.device().str(),
          .sizes = ToVector(tensor.sizes()),
          .strides = tensor.is_non_overlapping_and_dense() ? ToVector(tensor.strides())
                                                           : ContiguousStrides(tensor),
          .role = tensor.requires_grad() ? ParameterInfo::Role::kTrainable
                                         : ParameterInfo::Role::kFrozen};
}

}  // namespace

StatusOr<std::vector<ParameterInfo>> InspectParameters(const NamedTensors& parameters) {
  std::vector<ParameterInfo> infos;
  std::vector<Extent> extents;
  std::unordered_map<const void*, int> first_of_tensor;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters.name(i);
    const at::Tensor& tensor = parameters.tensor(i);
    AIT_RETURN_IF_ERROR(CheckTensor(name, tensor));
    StatusOr<DType> dtype = FromTorch(tensor.scalar_type());
    if (!dtype.ok()) return Annotate(dtype.status(), StrCat("parameter ", name));
    infos.push_back(InfoOf(name, tensor, *dtype));
    const auto index = static_cast<int>(i);
    const auto [first, is_new] = first_of_tensor.emplace(tensor.unsafeGetTensorImpl(), index);
    if (!is_new) {
      infos.back().tied_to = first->second;
    } else if (tensor.numel() > 0) {
      extents.push_back(ExtentOf(tensor, index));
    }
  }
  std::ranges::sort(extents, {}, [](const Extent& e) { return std::pair(e.begin, e.parameter); });
  for (std::size_t i = 1; i < extents.size(); ++i) {
    const Extent& before = extents[i - 1];
    const Extent& extent = extents[i];
    if (extent.begin >= before.end) continue;
    ParameterInfo& info = infos[static_cast<std::size_t>(extent.parameter)];
    const ParameterInfo& other = infos[static_cast<std::size_t>(before.parameter)];
    if (extent.begin != before.begin || extent.end != before.end || info.sizes != other.sizes ||
        info.strides != other.strides) {
      return InvalidArgumentError("parameters ", other.name, " and ", info.name,
                                  " overlap in memory but are not the same view of it");
    }
    info.tied_to = other.tied_to >= 0 ? other.tied_to : before.parameter;
  }
  // A name for a tensor that is itself tied goes to the owner.
  for (ParameterInfo& info : infos) {
    if (info.tied_to < 0) continue;
    const int owner = infos[static_cast<std::size_t>(info.tied_to)].tied_to;
    if (owner >= 0) info.tied_to = owner;
  }
  return infos;
}

StatusOr<std::unique_ptr<ParameterStore>> ParameterStore::Create(NamedTensors parameters,
                                                                 const FlatLayout& layout,
                                                                 MemoryHandle memory) {
  const c10::NoGradGuard no_grad;
  auto store = std::unique_ptr<ParameterStore>(new ParameterStore);
  store->layout_ = &layout;
  store->named_ = std::move(parameters);
  std::vector<at::Tensor> flat_parameters;
  const std::vector<std::int64_t> counts = store->PlaceBuckets();
  for (std::size_t g = 0; g < counts.size(); ++g) {
    const DType dtype = layout.groups()[g].dtype;
    AIT_ASSIGN_OR_RETURN(at::Tensor values, MakeFlat(counts[g], dtype, memory, "parameters"));
    store->buffers_.push_back(BufferOf(values, dtype));
    flat_parameters.push_back(std::move(values));
  }
  std::unordered_map<const void*, int> seen;
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
    const ParameterInfo& info = layout.parameters()[i];
    const auto index = static_cast<int>(i);
    if (info.role == ParameterInfo::Role::kFrozen) {
      if (info.unit < 0) store->frozen_.push_back(index);
      const at::Tensor& frozen = store->named_.tensor(i);
      const at::ScalarType type = ToTorch(info.dtype);
      if (frozen.scalar_type() != type) at::Tensor(frozen).set_data(frozen.detach().to(type));
      continue;
    }
    at::Tensor tensor = store->named_.tensor(i);
    if (!seen.emplace(tensor.unsafeGetTensorImpl(), index).second) continue;
    FlatSlot slot = *layout.slot(index);
    Handle& handle = store->handles_.emplace_back();
    handle.tensor = tensor;
    handle.owner = slot.parameter;
    const FlatBucket& bucket = layout.buckets()[static_cast<std::size_t>(slot.bucket)];
    if (bucket.unit >= 0) continue;
    slot.offset += store->begin(slot.bucket) - bucket.begin;
    const at::Tensor values =
        ViewOf(flat_parameters[static_cast<std::size_t>(bucket.group)], info, slot);
    if (info.tied_to < 0) values.copy_(tensor);
    tensor.set_data(values);
    handle.address = tensor.const_data_ptr();
  }
  return store;
}

// Where the buckets of no unit lie; returns the elements of each group.
std::vector<std::int64_t> ParameterStore::PlaceBuckets() {
  const std::vector<FlatBucket>& buckets = layout_->buckets();
  std::vector<std::size_t> order(buckets.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t b) { return buckets[b].begin; });
  std::vector<std::int64_t> counts(layout_->groups().size());
  begins_.resize(buckets.size());
  for (const std::size_t b : order) {
    std::int64_t& count = counts[static_cast<std::size_t>(buckets[b].group)];
    begins_[b] = count;
    if (buckets[b].unit < 0) count += buckets[b].count;
  }
  return counts;
}

Buffer ParameterStore::Elements(int b, ElementRange range) const {
  const FlatBucket& bucket = layout_->buckets()[static_cast<std::size_t>(b)];
  return buffers_[static_cast<std::size_t>(bucket.group)].Slice(
      begin(b) + range.begin - bucket.begin, range.size());
}

std::vector<int> ParameterStore::handle_counts() const {
  std::vector<int> counts(layout_->parameters().size());
  for (const Handle& handle : handles_) ++counts[static_cast<std::size_t>(handle.owner)];
  return counts;
}

Status ParameterStore::CheckUnchanged() const {
  const auto name = [&](int i) { return layout_->parameters()[static_cast<std::size_t>(i)].name; };
  for (const Handle& handle : handles_) {
    const ParameterInfo& info = layout_->parameters()[static_cast<std::size_t>(handle.owner)];
    if (!handle.tensor.requires_grad()) {
      return FailedPreconditionError("parameter ", name(handle.owner),
                                     " was frozen after the engine was made; make a new engine");
    }
    if (info.unit >= 0) continue;  // UnitStore looks at it
    if (handle.tensor.const_data_ptr() != handle.address || handle.tensor.sizes() != info.sizes ||
        handle.tensor.strides() != info.strides) {
      return FailedPreconditionError(
          "parameter ", name(handle.owner),
          " was moved, converted or reshaped after the engine was made (Module::to does that); "
          "change values in place, or make a new engine");
    }
  }
  for (const int i : frozen_) {
    if (named_.tensor(static_cast<std::size_t>(i)).requires_grad()) {
      return FailedPreconditionError("parameter ", name(i),
                                     " was frozen when the engine was made and is not now; make a "
                                     "new engine");
    }
  }
  return OkStatus();
}

void ParameterStore::BumpVersions() {
  for (const Handle& handle : handles_) handle.tensor.unsafeGetTensorImpl()->bump_version();
}

at::Tensor Contiguous(const at::Tensor& tensor) { return tensor.detach().contiguous(); }

void WriteBack(const at::Tensor& contiguous, const at::Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  if (contiguous.const_data_ptr() != tensor.const_data_ptr()) tensor.copy_(contiguous);
}

}  // namespace ait::inline v0::internal
