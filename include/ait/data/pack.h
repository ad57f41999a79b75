// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PACK_H_
#define AIT_DATA_PACK_H_

// Turns text files into a packed corpus: token files and a manifest in one directory.
//
// The tokens are bytes (vocabulary 256). Every file is one document, and every document is followed
// by one token 0, the separator; text holds no byte 0. Files that begin with the gzip magic are
// unpacked, dictzip's too. The manifest is written last, by rename: a directory holds the old
// corpus, the new one or none, whenever the process dies. Packing the same again does nothing.
//
// Of the files in the directory only shards, named shard-<16 hexadecimal digits>-<number>.tokens,
// are ever removed: once a corpus is complete all that are not its own, after a failure those that
// were added.
//
//   AIT_ASSIGN_OR_RETURN(PackReport report, PackText({"gcide.dict.dz"}, {.directory = "corpus"}));
//   auto data = TokenDataset::Open("corpus", {.sequence_length = 256});

#include <cstdint>
#include <string>
#include <vector>

#include "ait/base/status.h"

namespace ait::inline v0 {

/// The token between documents.
inline constexpr std::uint32_t kTextSeparator = 0;

/// What to do if the directory holds another corpus already.
enum class ExistingCorpus {
  kRefuse,   // FailedPrecondition
  kReplace,  // the old one stays valid until the new one is complete
};

struct PackOptions {
  std::string directory;                              // required; made if it does not exist
  std::int64_t shard_tokens = std::int64_t{1} << 28;  // most tokens of a shard, ≥ 1
  ExistingCorpus existing = ExistingCorpus::kRefuse;
};

struct PackReport {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;  // with separators
  std::int64_t shards = 0;
  std::int64_t vocabulary_size = 0;
  bool was_up_to_date = false;  // the directory held this very corpus; nothing was written
};

/// Packs `files` in the order given. **Blocks.** Reads and writes all of it.
/// **Errors.** NotFound: a file is missing. InvalidArgument: no files, an empty file, a byte 0.
/// DataLoss: a damaged gzip file. FailedPrecondition: see ExistingCorpus. Unavailable: another
/// process is packing there. ResourceExhausted: the disk is full. Aborted: a file changed
/// meanwhile.
StatusOr<PackReport> PackText(const std::vector<std::string>& files, const PackOptions& options);

}  // namespace ait::inline v0

#endif  // AIT_DATA_PACK_H_
