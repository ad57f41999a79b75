// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CHECKPOINT_SAFETENSORS_H_
#define AIT_CHECKPOINT_SAFETENSORS_H_

// Safetensors files: named arrays of bytes in the format that Hugging Face's library defines
// (https://github.com/huggingface/safetensors), without libtorch.
//
// The file is a 64-bit little-endian length, a JSON header of that length, and the data. The writer
// lays tensors out as the reference library does, byte for byte, and replaces the old file whole or
// not at all. The reader trusts nothing: a header that is too long, a repeated
// name, a wrong size, a hole, an overlap or bytes left over are errors that name the tensor. No
// code is ever run from a file.
//
//   AIT_ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open("model.safetensors"));
//   for (const TensorInfo& info : file.tensors()) {
//     std::vector<std::byte> bytes(info.bytes().value());
//     AIT_RETURN_IF_ERROR(file.Read(info, bytes));
//   }
//
// For model parameters see weights.h.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/data/format/safetensors_header.h"

namespace ait::inline v0 {

/// A tensor to write. `bytes` stays valid during the call.
struct TensorBytes {
  std::string name;  // UTF-8; any text but "__metadata__"
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Writes a file, durably. The order of `tensors` does not matter: the format orders them by dtype
/// and name.
/// **Errors.** InvalidArgument: a name is repeated, reserved or not UTF-8; the bytes do not fit the
/// shape. ResourceExhausted: the header would be too long, or the disk is full; the old file stays.
Status WriteSafetensors(const std::string& path, std::span<const TensorBytes> tensors,
                        const SafetensorsMetadata& metadata = {});

/// A file open for reading. **Thread-safety.** All const members may be called from any thread.
class SafetensorsFile {
 public:
  /// Opens and checks the whole header against the size of the file.
  /// **Errors.** DataLoss: the file is truncated or damaged; Unimplemented: a dtype that `DType`
  /// does not have (fp8, fp4, complex, uint64); else by errno. The path and the tensor are named.
  static StatusOr<SafetensorsFile> Open(std::string path);

  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
  ~SafetensorsFile();

  const std::string& path() const { return path_; }
  /// All tensors, ordered by name.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  /// The tensor of that name, or nullptr.
  const TensorInfo* Find(std::string_view name) const;
  const SafetensorsMetadata& metadata() const { return metadata_; }

  /// Reads the elements of one tensor of this file into `output`, which has its size in bytes.
  Status Read(const TensorInfo& tensor, std::span<std::byte> output) const;

 private:
  explicit SafetensorsFile(std::string path) : path_(std::move(path)) {}
  Status ReadAt(std::int64_t offset, std::span<std::byte> output) const;

  std::string path_;
  int file_ = -1;
  std::int64_t data_begin_bytes_ = 0;
  std::vector<TensorInfo> tensors_;
  SafetensorsMetadata metadata_;
};

}  // namespace ait::inline v0

#endif  // AIT_CHECKPOINT_SAFETENSORS_H_
