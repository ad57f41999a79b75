// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "data/formats_internal.h"
#include "data/megatron_index_internal.h"
#include "data/mix_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

struct CheckedIndex {
  MegatronIndex index;
  std::uint32_t crc32c = 0;
};

StatusOr<CheckedIndex> ReadIndex(const InputFile& file) {
  CheckedIndex result;
  AIT_ASSIGN_OR_RETURN(
      result.index,
      ReadMegatronIndex({.size_bytes = file.size_bytes(),
                         .read = [&](std::int64_t offset_bytes, std::span<std::byte> out) {
                           return file.ReadAt(offset_bytes, out);
                         }}));
  AIT_ASSIGN_OR_RETURN(result.crc32c, Crc32cOfFile(file, 0, file.size_bytes()));
  return result;
}

}  // namespace

StatusOr<TokenStream> OpenMegatron(const std::string& prefix) {
  AIT_ASSIGN_OR_RETURN(const InputFile index_file, InputFile::Open(prefix + ".idx"));
  const StatusOr<CheckedIndex> checked = ReadIndex(index_file);
  if (!checked.ok()) {
    return Annotate(checked.status(), StrCat("Megatron index ", index_file.path()));
  }
  AIT_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(prefix + ".bin"));
  const int token_bytes = SizeOf(checked->index.dtype);
  if (file.size_bytes() % token_bytes != 0 ||
      file.size_bytes() / token_bytes != checked->index.tokens) {
    return DataLossError("Megatron file ", file.path(),
                         " is truncated or too long: its index states ", checked->index.tokens,
                         " tokens of ", token_bytes, " bytes, it has ", file.size_bytes(),
                         " bytes");
  }
  TokenStream stream;
  stream.arrays.emplace_back(std::move(file), 0, checked->index.tokens, checked->index.dtype);
  AIT_ASSIGN_OR_RETURN(const std::uint64_t ends, DigestOfEnds(stream.arrays.front(), 0));
  stream.digest = Fold(ends, checked->crc32c);
  return stream;
}

}  // namespace internal
}  // namespace ait::inline v0
