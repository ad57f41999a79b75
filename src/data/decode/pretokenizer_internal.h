// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_PRETOKENIZER_INTERNAL_H_
#define AIT_DATA_DECODE_PRETOKENIZER_INTERNAL_H_

// How text is cut into pieces before they are encoded: the regular expressions of published
// tokenizers, each as a machine written by hand. A file names its expression by its text; only
// expressions that are known by their exact text are taken.

#include <cstdint>
#include <string>
#include <string_view>

#include "ait/base/status.h"
#include "data/decode/unicode_internal.h"

namespace ait::inline v0::internal {

struct Pattern {
  enum class Words : std::uint8_t {
    kGpt2,    // ' ?\p{L}+'
    kCl100k,  // '[^\r\n\p{L}\p{N}]?\p{L}+'
    kO200k,   // words end where lower case goes over to upper case
  };
  Words words = Words::kGpt2;
  int digits = 0;  // numbers are cut into pieces of as many; 0: not cut
  /// Whether blanks up to the end of the text are one piece, also where a line ends among them.
  bool keeps_last_blanks = false;
};

/// The pattern of that name or regular expression. **Errors.** Unimplemented with those known.
StatusOr<Pattern> FindPattern(std::string_view name_or_expression);

class PreTokenizer {
 public:
  explicit PreTokenizer(Pattern pattern) : pattern_(pattern) {}

  /// Bytes of the piece that `text`, UTF-8 and not empty, begins with; 1 or more.
  std::size_t Next(std::string_view text) const;

 private:
  struct Char {
    char32_t code;
    std::uint32_t length;  // 0: the end
    CharClass kind;
  };
  Char At(std::string_view text, std::size_t i) const;
  template <typename Predicate>
  std::size_t Skip(std::string_view text, std::size_t i, const Predicate& belongs) const;
  std::size_t Contraction(std::string_view text, std::size_t i) const;
  std::size_t Gpt2Word(std::string_view text, const Char& first) const;
  std::size_t Cl100kWord(std::string_view text, const Char& first) const;
  std::size_t O200kWord(std::string_view text, const Char& first) const;
  std::size_t CasedWord(std::string_view text, std::size_t i, bool needs_lower) const;
  std::size_t Blanks(std::string_view text) const;

  Pattern pattern_;
  CharClasses classes_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_DECODE_PRETOKENIZER_INTERNAL_H_
