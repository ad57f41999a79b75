// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_BPE_INTERNAL_H_
#define AIT_DATA_DECODE_BPE_INTERNAL_H_

// Byte-pair encoding of one piece of text (Sennrich et al., 2016): bytes become tokens, and the two
// neighbours of the least rank become one, until no pair has a rank.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ait/base/status.h"

namespace ait::inline v0::internal {

/// The tokens of pieces seen before; each place holds the last that fell on it.
class PieceCache {
 public:
  PieceCache() : slots_(kSlots) {}

  static constexpr std::size_t kMaxBytes = 22;
  static constexpr std::size_t kMaxIds = 8;

  struct Slot {
    std::uint8_t size = 0;  // bytes; 0: empty
    std::uint8_t count = 0;
    char bytes[kMaxBytes] = {};
    std::int32_t ids[kMaxIds] = {};
  };
  /// The place of a piece of 1 … kMaxBytes bytes, and whether it holds it.
  Slot& Find(std::string_view piece, bool& is_there);

 private:
  static constexpr std::size_t kSlots = 1 << 14;
  std::vector<Slot> slots_;
};

class Bpe {
 public:
  /// What one thread needs while it encodes.
  struct Scratch {
    struct Part {
      std::int32_t id;
      std::uint32_t rank;   // of this and the next; kNoRank: they do not join
      std::int32_t joined;  // what they become
      std::int32_t previous;
      std::int32_t next;
    };
    struct Candidate {
      std::uint32_t rank;
      std::int32_t at;
      std::int32_t left;
      std::int32_t right;
    };
    PieceCache cache;
    std::vector<Part> parts;
    std::vector<Candidate> heap;
  };

  /// Tokens, before pairs are added. **Errors.** InvalidArgument if a byte is none.
  Status SetTokens(std::vector<std::string> tokens, bool takes_whole_pieces);
  void AddPair(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t joined);
  /// All pairs whose bytes together are a token, its id being the rank: what tiktoken joins.
  void AddPairsOfRanks();
  void Finish();

  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::int32_t* Find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? nullptr : &found->second;
  }
  void Encode(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;

 private:
  static constexpr std::uint32_t kNoRank = 0xFFFFFFFF;
  struct Pair {
    std::uint64_t key = ~std::uint64_t{0};
    std::uint32_t rank = kNoRank;
    std::int32_t joined = -1;
  };
  static std::uint64_t KeyOf(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }
  const Pair& FindPair(std::int32_t left, std::int32_t right) const;
  void Merge(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void MergeLong(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
  bool takes_whole_pieces_ = false;
  std::array<std::int32_t, 256> byte_ids_ = {};
  std::vector<Pair> added_;
  std::vector<Pair> table_;  // open addressing, at most half full
  std::size_t mask_ = 0;
  Pair none_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_DECODE_BPE_INTERNAL_H_
