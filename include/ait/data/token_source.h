// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_TOKEN_SOURCE_H_
#define AIT_DATA_TOKEN_SOURCE_H_

// A corpus as one long stream of tokens that can be read from anywhere, whatever its files look
// like.
//
// `OpenTokenSource` finds the format by itself:
//   a directory that `ait pack` wrote    its shards one after the other (manifest.json)
//   a token file of ait                  "ait/data/token_file.h"
//   a .bin of llm.c                      magic 20240520 (uint16) or 20240801 (uint32)
//   a prefix, .bin or .idx of Megatron   all sequences one after the other
// Every length is checked against the file before use. A program may bring its own class.
//
//   AIT_ASSIGN_OR_RETURN(auto source, OpenTokenSource("corpus"));
//   std::vector<std::int64_t> tokens(1024);
//   return source->Read(0, tokens);

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ait/base/status.h"

namespace ait::inline v0 {

/// One of several reads of a source.
struct TokenRead {
  std::int64_t first = 0;       // position of the first token
  std::span<std::int64_t> out;  // as many as this holds
  Status status;                // set by ReadMany
};

/// A stream of tokens with random access. **Thread-safety.** All calls may come from any thread.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// Where the tokens come from, for messages.
  virtual const std::string& name() const = 0;
  virtual std::int64_t token_count() const = 0;
  /// Every token that `Read` gives is less than this.
  virtual std::int64_t vocabulary_size() const = 0;
  /// Equal for the same corpus, also when it was packed into other shards; very likely unequal
  /// otherwise. docs/data.md says what it is made of.
  virtual std::uint64_t digest() const = 0;

  /// Reads out.size() tokens from position `first`. **Blocks.** On the disk.
  /// **Errors.** OutOfRange: beyond the end. DataLoss: a file shrank or holds a token that is not
  /// in the vocabulary. Aborted: a file was written to or replaced since it was opened.
  virtual Status Read(std::int64_t first, std::span<std::int64_t> out) const = 0;

  /// Does several reads, in any order and together where the source can; each gets its own status.
  /// The default does one after the other. **Blocks.** On the disk.
  virtual void ReadMany(std::span<TokenRead> reads) const;
};

/// How much is checked when a corpus is opened.
enum class Verification {
  kContents,  // sizes and the checksum of every token: reads all of it once, at about 5 GB/s
  kSizes,     // headers and sizes only, for corpora too large to read at each start
};

struct TokenSourceOptions {
  Verification verification = Verification::kContents;
  /// For formats that do not state it (llm.c, Megatron): the vocabulary, checked against every
  /// token that is read. 0: as the file says, or as much as its dtype can hold. Must not contradict
  /// a file that states it.
  std::int64_t vocabulary_size = 0;
};

/// Opens a corpus of any known format.
/// **Errors.** NotFound; InvalidArgument: no known format, or a field that makes no sense;
/// DataLoss: truncated, or a checksum that does not fit; Unimplemented: a version or dtype that is
/// not read.
StatusOr<std::unique_ptr<TokenSource>> OpenTokenSource(const std::string& path,
                                                       TokenSourceOptions options = {});

}  // namespace ait::inline v0

#endif  // AIT_DATA_TOKEN_SOURCE_H_
