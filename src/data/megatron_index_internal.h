// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_MEGATRON_INDEX_INTERNAL_H_
#define AIT_DATA_MEGATRON_INDEX_INTERNAL_H_

// The .idx of Megatron, read and checked in pieces, from a file or any other object.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/base/status.h"

namespace ait::inline v0 {
namespace internal {

struct MegatronIndexFile {
  std::int64_t size_bytes = 0;
  std::function<Status(std::int64_t offset_bytes, std::span<std::byte> out)> read;
};

struct MegatronIndex {
  DType dtype = DType::kUInt16;
  std::int64_t sequences = 0;
  std::int64_t borders = 0;  // of documents, one more than there are
  std::int64_t tokens = 0;
};

/// Checks that sequences follow each other without a gap and documents too. `document_begins`, if
/// given, gets the first token of every document and the end of the last.
/// **Errors.** InvalidArgument, DataLoss, Unimplemented, without the name of the file.
StatusOr<MegatronIndex> ReadMegatronIndex(const MegatronIndexFile& file,
                                          std::vector<std::int64_t>* document_begins = nullptr);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_MEGATRON_INDEX_INTERNAL_H_
