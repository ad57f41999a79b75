// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_SWAPPED_STORAGE_INTERNAL_H_
#define AIT_PARALLEL_SWAPPED_STORAGE_INTERNAL_H_

// The memory of tensors, which comes and goes.
//
// Tensors over it, views of them and what autograd has saved of them all share one c10::StorageImpl:
// whoever asks for the data while it is there gets the address that it has now. While it is away,
// every access to the data throws, with a text that says so; shapes, views and version counters
// work on.
//
//   SwappedStorage storage(bytes, "unit blocks.3 is not gathered");
//   parameter.set_data(storage.View(DType::kFloat32, {4, 4}, {4, 1}, 0));
//   storage.Set(block);   …   storage.Clear();

#include <cstdint>
#include <string>

#include "ait/base/dtype.h"
#include "tensor/torch_internal.h"

namespace ait::inline v0::internal {

/// **Thread-safety.** As of an int; tensors over it must not be in use while it changes.
class SwappedStorage {
 public:
  /// Is away. `away` is the text of the exception then.
  SwappedStorage(std::int64_t bytes, std::string away);

  /// A new tensor, `offset` elements after the begin.
  at::Tensor View(DType dtype, at::IntArrayRef sizes, at::IntArrayRef strides,
                  std::int64_t offset) const;

  /// The data is at `data`, which the caller owns, until `Clear` or the next `Set`.
  void Set(void* data);
  void Clear();
  /// Another text, for instance when the owner has gone.
  void Clear(std::string away);

  /// Whether `tensor` looks into this memory.
  bool Holds(const at::Tensor& tensor) const;

 private:
  c10::Storage storage_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_SWAPPED_STORAGE_INTERNAL_H_
