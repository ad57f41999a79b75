// SPDX-License-Identifier: Apache-2.0
#include "ait/checkpoint/weights.h"

// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
// clang-format on

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "ait/tensor/dtype.h"
#include "data/format/safetensors_header_internal.h"
#include "tensor/catch.h"

namespace ait::inline v0 {
namespace {

std::vector<std::int64_t> ShapeOf(const at::Tensor& tensor) { return tensor.sizes().vec(); }

std::span<const std::byte> BytesOf(const at::Tensor& contiguous) {
  return {static_cast<const std::byte*>(contiguous.const_data_ptr()), contiguous.nbytes()};
}

/// DType of a tensor that a file can hold.
StatusOr<DType> CheckTensor(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) return InvalidArgumentError("tensor \"", name, "\" is undefined");
  if (tensor.layout() != at::kStrided || tensor.is_quantized())
    return InvalidArgumentError("tensor \"", name, "\" is not dense");
  StatusOr<DType> dtype = FromTorch(tensor.scalar_type());
  if (!dtype.ok()) return Annotate(dtype.status(), StrCat("tensor \"", name, "\""));
  return dtype;
}

/// True if both have the same elements in the same memory.
bool AreTied(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) || (a.numel() > 0 && a.const_data_ptr() == b.const_data_ptr() &&
                          a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
                          a.strides() == b.strides());
}

/// Index of the tensor that is written in place of each: itself, or the tied one whose name sorts
/// first.
std::vector<std::size_t> KeptTensors(const NamedTensors& tensors) {
  std::map<const void*, std::vector<std::size_t>> by_address;
  std::vector<std::size_t> kept(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    kept[i] = i;
    by_address[tensors.tensor(i).const_data_ptr()].push_back(i);
  }
  for (const auto& [address, same] : by_address) {
    for (const std::size_t i : same) {
      for (const std::size_t j : same) {
        if (tensors.name(j) < tensors.name(kept[i]) &&
            AreTied(tensors.tensor(i), tensors.tensor(j)))
          kept[i] = j;
      }
    }
  }
  return kept;
}

Status Save(const std::string& path, const NamedTensors& tensors, SafetensorsMetadata metadata) {
  std::vector<DType> dtypes;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    AIT_ASSIGN_OR_RETURN(const DType dtype, CheckTensor(tensors.name(i), tensors.tensor(i)));
    dtypes.push_back(dtype);
  }
  metadata.emplace("format", "pt");
  const std::vector<std::size_t> kept = KeptTensors(tensors);
  std::vector<at::Tensor> values;  // owns the copies
  std::vector<TensorBytes> bytes;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (kept[i] != i) {
      metadata[tensors.name(i)] = tensors.name(kept[i]);
      continue;
    }
    values.push_back(tensors.tensor(i).detach().cpu().contiguous().resolve_neg());
    bytes.push_back({.name = tensors.name(i),
                     .dtype = dtypes[i],
                     .shape = ShapeOf(values.back()),
                     .bytes = BytesOf(values.back())});
  }
  return WriteSafetensors(path, bytes, metadata);
}

/// "a", "b", "c" and 4 more.
std::string List(const std::vector<std::string>& items) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(items.size(), kShown); ++i)
    text += StrCat(i == 0 ? "" : ", ", items[i]);
  if (items.size() > kShown) text += StrCat(" and ", items.size() - kShown, " more");
  return text;
}

/// What is to be read from where, and all that does not fit.
struct Plan {
  std::vector<const TensorInfo*> sources;  // one per tensor; null: nothing is read
  std::vector<std::string> missing, unexpected;
  std::vector<std::string> missing_shapes, unexpected_shapes, wrong;  // with shapes, for messages
};

StatusOr<Plan> MakePlan(const SafetensorsFile& file, const NamedTensors& tensors) {
  Plan plan;
  std::set<std::string_view> used;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo* info = file.Find(tensors.name(i));
    const auto alias = file.metadata().find(tensors.name(i));
    if (info == nullptr && alias != file.metadata().end()) info = file.Find(alias->second);
    if (info != nullptr) used.insert(info->name);
    plan.sources.push_back(info);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors.tensor(i);
    AIT_ASSIGN_OR_RETURN(const DType dtype, CheckTensor(tensors.name(i), tensor));
    const std::string have = internal::DescribeTensor(dtype, ShapeOf(tensor));
    if (const TensorInfo* info = plan.sources[i]; info != nullptr) {
      if (info->dtype != dtype || info->shape != ShapeOf(tensor)) {
        plan.wrong.push_back(StrCat("\"", tensors.name(i), "\" is ",
                                    internal::DescribeTensor(info->dtype, info->shape),
                                    " in the file and ", have, " in the model"));
      }
      continue;
    }
    bool loaded_by_tie = false;
    for (std::size_t j = 0; j < tensors.size() && !loaded_by_tie; ++j)
      loaded_by_tie = plan.sources[j] != nullptr && AreTied(tensor, tensors.tensor(j));
    if (loaded_by_tie) continue;
    plan.missing.push_back(tensors.name(i));
    plan.missing_shapes.push_back(StrCat("\"", tensors.name(i), "\" (", have, ")"));
  }
  for (const TensorInfo& info : file.tensors()) {
    if (used.contains(info.name)) continue;
    plan.unexpected.push_back(info.name);
    plan.unexpected_shapes.push_back(
        StrCat("\"", info.name, "\" (", internal::DescribeTensor(info.dtype, info.shape), ")"));
  }
  return plan;
}

StatusOr<bool> HaveSameBytes(const SafetensorsFile& file, const TensorInfo& a,
                             const TensorInfo& b) {
  std::vector<std::byte> of_a(static_cast<std::size_t>(a.bytes().value()));
  std::vector<std::byte> of_b(static_cast<std::size_t>(b.bytes().value()));
  AIT_RETURN_IF_ERROR(file.Read(a, of_a));
  AIT_RETURN_IF_ERROR(file.Read(b, of_b));
  return of_a == of_b;
}

/// Finds tied tensors that would be read from two tensors of the file with different values.
StatusOr<std::vector<std::string>> FindTornTies(const SafetensorsFile& file,
                                                const NamedTensors& tensors, const Plan& plan) {
  std::vector<std::string> torn;
  const std::vector<std::size_t> kept = KeptTensors(tensors);
  std::map<std::size_t, std::size_t> first_of;  // kept tensor: the first tied one with a source
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo* source = plan.sources[i];
    if (source == nullptr) continue;
    const std::size_t first = first_of.try_emplace(kept[i], i).first->second;
    if (plan.sources[first] == source) continue;
    AIT_ASSIGN_OR_RETURN(const bool same, HaveSameBytes(file, *plan.sources[first], *source));
    if (!same)
      torn.push_back(StrCat("\"", tensors.name(first), "\" and \"", tensors.name(i), "\""));
  }
  return torn;
}

Status ReadInto(const SafetensorsFile& file, const TensorInfo& info, const at::Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  const bool direct = tensor.is_contiguous() && tensor.device().is_cpu() && !tensor.is_neg();
  const at::Tensor values =
      direct ? tensor
             : at::empty_like(tensor, at::TensorOptions(at::kCPU), at::MemoryFormat::Contiguous);
  AIT_RETURN_IF_ERROR(
      file.Read(info, {static_cast<std::byte*>(values.data_ptr()), values.nbytes()}));
  if (direct) {
    tensor.unsafeGetTensorImpl()->bump_version();
  } else {
    tensor.copy_(values);
  }
  return OkStatus();
}

/// The plan, if the file fits.
StatusOr<Plan> MakeFittingPlan(const SafetensorsFile& file, const NamedTensors& tensors,
                               const LoadWeightsOptions& options) {
  AIT_ASSIGN_OR_RETURN(Plan plan, MakePlan(file, tensors));
  std::string faults;
  const auto add = [&](const char* what, const std::vector<std::string>& items) {
    if (!items.empty()) faults += StrCat(faults.empty() ? "" : "; ", what, List(items));
  };
  add("", plan.wrong);
  if (options.missing == NamePolicy::kMustMatch) add("missing in the file: ", plan.missing_shapes);
  if (options.unexpected == NamePolicy::kMustMatch)
    add("unknown to the model: ", plan.unexpected_shapes);
  if (plan.wrong.empty()) {
    AIT_ASSIGN_OR_RETURN(const auto torn, FindTornTies(file, tensors, plan));
    add("one tensor in the model, different ones in the file: ", torn);
  }
  if (!faults.empty())
    return FailedPreconditionError(file.path(), " does not fit the model: ", faults);
  return plan;
}

StatusOr<LoadedWeights> Load(const std::string& path, const NamedTensors& tensors,
                             const LoadWeightsOptions& options) {
  AIT_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  AIT_ASSIGN_OR_RETURN(Plan plan, MakeFittingPlan(file, tensors, options));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (plan.sources[i] != nullptr)
      AIT_RETURN_IF_ERROR(ReadInto(file, *plan.sources[i], tensors.tensor(i)));
  }
  return LoadedWeights{.missing = std::move(plan.missing),
                       .unexpected = std::move(plan.unexpected)};
}

}  // namespace

Status SaveWeights(const std::string& path, const NamedTensors& tensors,
                   SafetensorsMetadata metadata) {
  return internal::CatchAsStatus([&] { return Save(path, tensors, std::move(metadata)); });
}

Status CheckWeights(const std::string& path, const NamedTensors& tensors,
                    LoadWeightsOptions options) {
  return internal::CatchAsStatus([&]() -> Status {
    AIT_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
    return MakeFittingPlan(file, tensors, options).status();
  });
}

StatusOr<LoadedWeights> LoadWeights(const std::string& path, const NamedTensors& tensors,
                                    LoadWeightsOptions options) {
  return internal::CatchAsStatus([&] { return Load(path, tensors, options); });
}

}  // namespace ait::inline v0
