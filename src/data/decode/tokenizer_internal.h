// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_TOKENIZER_INTERNAL_H_
#define AIT_DATA_DECODE_TOKENIZER_INTERNAL_H_

// The parts of a tokenizer, as the readers of files fill them.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/data/decode/tokenizer.h"
#include "data/decode/bpe_internal.h"
#include "data/decode/pretokenizer_internal.h"

namespace ait::inline v0 {
namespace internal {

/// Texts that are tokens of their own wherever they occur; of several that begin at one place the
/// longest counts.
class AddedTokens {
 public:
  void Add(std::string_view text, std::int32_t id);
  bool is_empty() const { return nodes_.size() == 1; }

  struct Match {
    std::size_t begin = 0;
    std::size_t size = 0;  // 0: there is none
    std::int32_t id = -1;
  };
  Match FindFirst(std::string_view text) const;

 private:
  struct Node {
    std::int32_t id = -1;
    std::vector<std::pair<char, std::uint32_t>> next;
  };
  std::uint32_t Step(std::uint32_t node, char c) const;  // 0 if there is none
  std::vector<Node> nodes_ = std::vector<Node>(1);
  bool begins_[256] = {};
};

}  // namespace internal

/// What a file says; `Build` makes it a tokenizer.
struct TokenizerParts {
  struct Added {
    std::string text;
    std::int32_t id = 0;
    bool is_special = false;
    bool is_normalized = false;  // found after the normalizer, in its output
  };

  internal::Bpe bpe;
  std::optional<internal::Pattern> pattern;  // nullopt: text is not cut
  bool adds_prefix_space = false;
  bool composes = false;  // NFC
  std::vector<Added> added;
  std::vector<std::int32_t> before;  // of the template
  std::vector<std::int32_t> after;

  static StatusOr<Tokenizer::Ptr> Build(TokenizerParts parts);
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_TOKENIZER_INTERNAL_H_
