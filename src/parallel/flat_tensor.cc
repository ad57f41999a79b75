// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/from_blob.h>

#include <memory>
#include <utility>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/tensor/dtype.h"
#include "parallel/flat_tensor_internal.h"

namespace ait::inline v0::internal {

StatusOr<at::Tensor> MakeFlat(std::int64_t count, DType dtype, const MemoryHandle& memory,
                              std::string_view what) {
  const auto bytes = static_cast<std::size_t>(count * SizeOf(dtype));
  StatusOr<HostBuffer> buffer =
      HostBuffer::Create(memory ? memory : MemoryHandle(HeapResource::Create()), bytes);
  if (!buffer.ok()) return Annotate(buffer.status(), StrCat("flat buffer of the ", what));
  buffer->Zero();
  auto owner = std::make_shared<HostBuffer>(*std::move(buffer));
  return at::from_blob(
      owner->data(), {count}, [owner](void*) {}, at::TensorOptions(ToTorch(dtype)));
}

Buffer BufferOf(const at::Tensor& flat, DType dtype) {
  return {flat.data_ptr(), flat.numel(), dtype};
}

at::Tensor ViewOf(const at::Tensor& flat, const ParameterInfo& info, const FlatSlot& slot) {
  return flat.as_strided(info.sizes, info.strides, slot.offset);
}

}  // namespace ait::inline v0::internal
