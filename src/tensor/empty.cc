// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/empty.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "ait/tensor/dtype.h"
#include "tensor/catch.h"
#include "tensor/torch_internal.h"

namespace ait::inline v0 {
namespace {

/// A block of a resource, as the context of a DataPtr.
struct OwnedBlock {
  MemoryHandle memory;
  void* block;
  std::size_t bytes;

  ~OwnedBlock() {
    if (block != nullptr) c10::profiledCPUMemoryReporter().Delete(block);
    memory.Deallocate(block, bytes);
  }
  static void Delete(void* context) { delete static_cast<OwnedBlock*>(context); }
};

std::string Describe(std::span<const std::int64_t> shape, DType dtype) {
  std::string text = StrCat("a tensor of ", Name(dtype), " and shape (");
  for (std::size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", shape[i]);
  return text + ")";
}

}  // namespace

StatusOr<at::Tensor> Empty(std::span<const std::int64_t> shape, DType dtype,
                           const MemoryHandle& memory) {
  constexpr auto kMost = static_cast<std::int64_t>(MemoryResource::kMaxBytes);
  std::int64_t count = 1;
  bool overflow = false, empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) {
      return InvalidArgumentError("cannot make ", Describe(shape, dtype), ": size ", size,
                                  " is negative");
    }
    if (size == 0) empty = true;
    // As libtorch does, sizes that overflow are refused beside a size of zero, too.
    if (__builtin_mul_overflow(count, std::max<std::int64_t>(size, 1), &count)) overflow = true;
  }
  const auto element = static_cast<std::int64_t>(SizeOf(dtype));
  if (overflow || count > kMost / element) {
    return InvalidArgumentError("cannot make ", Describe(shape, dtype), ": it takes more than ",
                                kMost, " bytes; check that its sizes did not overflow");
  }
  if (empty) count = 0;
  const MemoryProperties properties = memory.properties();
  if (properties.residence == Residence::kDevice) {
    return InvalidArgumentError("cannot make ", Describe(shape, dtype), " for the CPU in ",
                                properties.name, ": it is memory of a device");
  }
  const auto bytes = static_cast<std::size_t>(count * element);
  StatusOr<void*> block = memory.Allocate(bytes);
  if (!block.ok()) {
    return Annotate(block.status(), StrCat("cannot make ", Describe(shape, dtype)));
  }
  auto owned = std::unique_ptr<OwnedBlock>(new OwnedBlock{memory, *block, bytes});
  return internal::CatchAsStatus([&] {
    if (*block != nullptr) c10::profiledCPUMemoryReporter().New(*block, bytes);
    c10::DataPtr data(*block, owned.release(), &OwnedBlock::Delete,
                      c10::Device(c10::DeviceType::CPU));
    auto storage = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<std::int64_t>(bytes)),
        std::move(data), /*allocator=*/nullptr, /*resizable=*/false);
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU),
        c10::scalarTypeToTypeMeta(ToTorch(dtype)));
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous({shape.data(), shape.size()});
    return tensor;
  });
}

StatusOr<at::Tensor> Empty(std::initializer_list<std::int64_t> shape, DType dtype,
                           const MemoryHandle& memory) {
  return Empty(std::span(shape.begin(), shape.size()), dtype, memory);
}

}  // namespace ait::inline v0
