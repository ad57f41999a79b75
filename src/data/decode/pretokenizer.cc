// SPDX-License-Identifier: Apache-2.0
#include "data/decode/pretokenizer_internal.h"

#include <algorithm>

namespace ait::inline v0::internal {
namespace {

using Words = Pattern::Words;

struct Known {
  std::string_view name;
  std::string_view expression;
  Pattern pattern;
};

// The possessive forms are those of tiktoken since 0.8; they match the same but where noted.
#define AIT_LETTERS_AFTER R"([^\r\n\p{L}\p{N}]?\p{L}+|)"
#define AIT_SUFFIX R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define AIT_BLANKS R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define AIT_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define AIT_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define AIT_BEFORE R"([^\r\n\p{L}\p{N}]?)"
constexpr Known kKnown[] = {
    {"gpt2",
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     {Words::kGpt2, 0, false}},
    {"gpt2",
     R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     {Words::kGpt2, 0, false}},
    {"gpt2",
     R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)",
     {Words::kGpt2, 0, false}},
    {"cl100k_base",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
     {Words::kCl100k, 3, true}},
    {"cl100k_base",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     {Words::kCl100k, 3, false}},
    {"llama3",
     AIT_SUFFIX "|" AIT_LETTERS_AFTER R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" AIT_BLANKS,
     {Words::kCl100k, 3, false}},
    {"qwen2",
     AIT_SUFFIX "|" AIT_LETTERS_AFTER R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" AIT_BLANKS,
     {Words::kCl100k, 1, false}},
    {"o200k_base",
     AIT_BEFORE AIT_UPPER "*" AIT_LOWER "+" AIT_SUFFIX "?|" AIT_BEFORE AIT_UPPER "+" AIT_LOWER
                          "*" AIT_SUFFIX R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" AIT_BLANKS,
     {Words::kO200k, 3, false}},
};
#undef AIT_LETTERS_AFTER
#undef AIT_SUFFIX
#undef AIT_BLANKS
#undef AIT_UPPER
#undef AIT_LOWER
#undef AIT_BEFORE

bool IsLetter(CharClass kind) {
  return kind == CharClass::kUpper || kind == CharClass::kLower || kind == CharClass::kOtherLetter;
}
bool IsSymbol(CharClass kind) { return kind == CharClass::kOther || kind == CharClass::kMark; }
bool IsUpperPart(CharClass kind) {
  return kind == CharClass::kUpper || kind == CharClass::kOtherLetter || kind == CharClass::kMark;
}
bool IsLowerPart(CharClass kind) {
  return kind == CharClass::kLower || kind == CharClass::kOtherLetter || kind == CharClass::kMark;
}
bool IsLineEnd(char32_t code) { return code == '\r' || code == '\n'; }

}  // namespace

StatusOr<Pattern> FindPattern(std::string_view name_or_expression) {
  std::string names;
  std::string_view last;
  for (const Known& known : kKnown) {
    if (name_or_expression == known.name || name_or_expression == known.expression) {
      return known.pattern;
    }
    if (known.name != last) names += StrCat(names.empty() ? "" : ", ", known.name);
    last = known.name;
  }
  return UnimplementedError("the pattern ", name_or_expression.substr(0, 200),
                            " is not known; known are those of ", names);
}

PreTokenizer::Char PreTokenizer::At(std::string_view text, std::size_t i) const {
  if (i >= text.size()) return {0, 0, CharClass::kSpace};
  const Utf8Char c = FirstChar(text.data() + i);
  return {c.code, c.length, classes_.Of(c.code)};
}

/// The end of the run at `i` of characters that belong.
template <typename Predicate>
std::size_t PreTokenizer::Skip(std::string_view text, std::size_t i,
                               const Predicate& belongs) const {
  while (true) {
    const Char c = At(text, i);
    if (c.length == 0 || !belongs(c)) return i;
    i += c.length;
  }
}

/// The end of 's, 't, 're, 've, 'm, 'll or 'd at `i`, in either case but for GPT-2; 0 if none is.
std::size_t PreTokenizer::Contraction(std::string_view text, std::size_t i) const {
  if (i >= text.size() || text[i] != '\'') return 0;
  const bool folds = pattern_.words != Words::kGpt2;
  const auto letter = [&](std::size_t at) -> char32_t {
    const Char c = At(text, at);
    if (!folds) return c.code;
    if (c.code == 0x17F) return char32_t{'s'};  // the long s
    return c.code >= 'A' && c.code <= 'Z' ? c.code + 32 : c.code;
  };
  const char32_t first = letter(i + 1);
  const std::size_t second_at = i + 1 + At(text, i + 1).length;
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return second_at;
  const char32_t second = letter(second_at);
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
      (first == 'l' && second == 'l')) {
    return second_at + 1;
  }
  return 0;
}

std::size_t PreTokenizer::Gpt2Word(std::string_view text, const Char& first) const {
  const std::size_t begin = first.code == ' ' ? 1 : 0;
  const Char c = begin == 0 ? first : At(text, 1);
  if (c.length == 0 || c.kind == CharClass::kSpace) return 0;
  if (IsLetter(c.kind)) {
    return Skip(text, begin, [](const Char& x) { return IsLetter(x.kind); });
  }
  if (c.kind == CharClass::kNumber) {
    return Skip(text, begin, [](const Char& x) { return x.kind == CharClass::kNumber; });
  }
  return Skip(text, begin, [](const Char& x) { return IsSymbol(x.kind); });
}

std::size_t PreTokenizer::Cl100kWord(std::string_view text, const Char& first) const {
  const auto letters = [](const Char& x) { return IsLetter(x.kind); };
  if (IsLetter(first.kind)) return Skip(text, first.length, letters);
  if (first.kind == CharClass::kNumber || IsLineEnd(first.code)) return 0;
  if (!IsLetter(At(text, first.length).kind)) return 0;
  return Skip(text, first.length, letters);
}

/// [Lu Lt Lm Lo M]*[Ll Lm Lo M]+ at `i`, or if no lower part is needed [Lu …]+[Ll …]*, and a
/// contraction; 0 if there is none.
std::size_t PreTokenizer::CasedWord(std::string_view text, std::size_t i, bool needs_lower) const {
  std::size_t end = i;
  std::size_t after_lower = 0;  // end of the last character that may also be the lower part
  while (true) {
    const Char c = At(text, end);
    if (c.length == 0 || !IsUpperPart(c.kind)) break;
    end += c.length;
    if (IsLowerPart(c.kind)) after_lower = end;
  }
  const auto lower = [](const Char& x) { return IsLowerPart(x.kind); };
  const std::size_t all = Skip(text, end, lower);
  if (needs_lower) {
    end = all > end ? all : after_lower;
    if (end == 0) return 0;
  } else {
    if (end == i) return 0;
    end = all;
  }
  const std::size_t contraction = Contraction(text, end);
  return contraction != 0 ? contraction : end;
}

std::size_t PreTokenizer::O200kWord(std::string_view text, const Char& first) const {
  const bool has_prefix =
      !IsLetter(first.kind) && first.kind != CharClass::kNumber && !IsLineEnd(first.code);
  for (const bool needs_lower : {true, false}) {
    if (has_prefix) {
      const std::size_t end = CasedWord(text, first.length, needs_lower);
      if (end != 0) return end;
    }
    const std::size_t end = CasedWord(text, 0, needs_lower);
    if (end != 0) return end;
  }
  return 0;
}

/// \s*[\r\n]+, \s+(?!\S) or \s+, where the text begins with a blank.
std::size_t PreTokenizer::Blanks(std::string_view text) const {
  std::size_t end = 0;
  std::size_t last = 0;        // where the last blank begins
  std::size_t after_line = 0;  // behind the last end of a line
  while (true) {
    const Char c = At(text, end);
    if (c.length == 0 || c.kind != CharClass::kSpace) break;
    last = end;
    end += c.length;
    if (IsLineEnd(c.code)) after_line = end;
  }
  const bool is_last = end == text.size();
  if (is_last && pattern_.keeps_last_blanks) return end;
  if (after_line != 0 && pattern_.words != Words::kGpt2) return after_line;
  return is_last || last == 0 ? end : last;
}

std::size_t PreTokenizer::Next(std::string_view text) const {
  const Char first = At(text, 0);
  std::size_t end = 0;
  if (pattern_.words != Words::kO200k) {
    end = Contraction(text, 0);
    if (end != 0) return end;
  }
  switch (pattern_.words) {
    case Words::kGpt2:
      end = Gpt2Word(text, first);
      return end != 0 ? end : Blanks(text);
    case Words::kCl100k:
      end = Cl100kWord(text, first);
      break;
    case Words::kO200k:
      end = O200kWord(text, first);
      break;
  }
  if (end != 0) return end;
  if (first.kind == CharClass::kNumber) {
    end = first.length;
    for (int i = 1; i < pattern_.digits; ++i) {
      const Char c = At(text, end);
      if (c.length == 0 || c.kind != CharClass::kNumber) break;
      end += c.length;
    }
    return end;
  }
  const std::size_t begin = first.code == ' ' ? 1 : 0;
  end = Skip(text, begin, [](const Char& x) { return IsSymbol(x.kind); });
  if (end > begin) {
    const bool takes_slash = pattern_.words == Words::kO200k;
    return Skip(text, end,
                [&](const Char& x) { return IsLineEnd(x.code) || (takes_slash && x.code == '/'); });
  }
  return Blanks(text);
}

}  // namespace ait::inline v0::internal
