// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>

#include "data/decode/unicode_internal.h"

namespace ait::inline v0::internal {
namespace {

/// The value of the run that `c` lies in; 0 before the first.
std::uint32_t ValueOf(std::span<const std::uint32_t> runs, char32_t c, int value_bits) {
  const std::uint32_t all_values = (1U << value_bits) - 1;
  const auto after = std::upper_bound(runs.begin(), runs.end(),
                                      static_cast<std::uint32_t>(c) << value_bits | all_values);
  return after == runs.begin() ? 0 : *(after - 1) & all_values;
}

std::uint8_t CombiningClass(char32_t c) {
  return c < 0x300 ? 0 : static_cast<std::uint8_t>(ValueOf(UnicodeCombining(), c, 8));
}

// Hangul syllables are computed: The Unicode Standard 15.0, section 3.12.
constexpr char32_t kSyllable = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;
constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28;
constexpr char32_t kSyllables = kLeads * kVowels * kTails;

}  // namespace

CharClasses::CharClasses() {
  table_.resize(0x20000);
  std::uint32_t begin = 0;
  std::uint8_t value = 0;
  for (const std::uint32_t run : UnicodeClasses()) {
    const std::uint32_t end = std::min<std::uint32_t>(run >> 3, 0x20000);
    std::fill(table_.begin() + begin, table_.begin() + end, value);
    begin = end;
    value = run & 7;
  }
  std::fill(table_.begin() + begin, table_.end(), value);
}

CharClass CharClasses::Search(char32_t c) const {
  return static_cast<CharClass>(ValueOf(UnicodeClasses(), c, 3));
}

std::size_t FindInvalidUtf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  const std::size_t size = text.size();
  std::size_t i = 0;
  while (i < size) {
    if (i + 8 <= size) {
      std::uint64_t eight;
      std::memcpy(&eight, bytes + i, 8);
      if ((eight & 0x8080808080808080) == 0) {
        i += 8;
        continue;
      }
    }
    const std::uint8_t first = bytes[i];
    if (first < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || length > size - i) return i;
    std::uint8_t low = 0x80, high = 0xBF;  // of the second byte
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
    if (bytes[i + 1] < low || bytes[i + 1] > high) return i;
    for (std::size_t k = 2; k < length; ++k) {
      if ((bytes[i + k] & 0xC0) != 0x80) return i;
    }
    i += length;
  }
  return size;
}

void AppendUtf8(char32_t c, std::string& text) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

Composer::Composer() {
  const auto table = UnicodeCompositions();
  by_composed_.resize(table.size() / 3);
  for (std::uint32_t i = 0; i < by_composed_.size(); ++i) by_composed_[i] = i;
  std::sort(by_composed_.begin(), by_composed_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return table[3 * a + 2] < table[3 * b + 2]; });
}

void Composer::Decompose(char32_t c, std::u32string& to) const {
  if (c < 0xC0) {
    to.push_back(c);
    return;
  }
  if (c >= kSyllable && c < kSyllable + kSyllables) {
    const char32_t index = c - kSyllable;
    to.push_back(kLead + index / (kVowels * kTails));
    to.push_back(kVowel + index / kTails % kVowels);
    if (index % kTails != 0) to.push_back(kTail + index % kTails);
    return;
  }
  const auto compositions = UnicodeCompositions();
  const auto composed = std::lower_bound(
      by_composed_.begin(), by_composed_.end(), c,
      [&](std::uint32_t i, char32_t value) { return compositions[3 * i + 2] < value; });
  if (composed != by_composed_.end() && compositions[3 * *composed + 2] == c) {
    Decompose(compositions[3 * *composed], to);
    Decompose(compositions[3 * *composed + 1], to);
    return;
  }
  const auto others = UnicodeDecompositions();
  std::size_t begin = 0, end = others.size() / 3;
  while (begin < end) {
    const std::size_t middle = (begin + end) / 2;
    if (others[3 * middle] < c) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  if (begin < others.size() / 3 && others[3 * begin] == c) {
    Decompose(others[3 * begin + 1], to);
    if (others[3 * begin + 2] != 0) Decompose(others[3 * begin + 2], to);
    return;
  }
  to.push_back(c);
}

char32_t Composer::Compose(char32_t first, char32_t second) const {
  if (first >= kLead && first < kLead + kLeads && second >= kVowel && second < kVowel + kVowels) {
    return kSyllable + ((first - kLead) * kVowels + (second - kVowel)) * kTails;
  }
  if (first >= kSyllable && first < kSyllable + kSyllables && (first - kSyllable) % kTails == 0 &&
      second > kTail && second < kTail + kTails) {
    return first + (second - kTail);
  }
  const auto table = UnicodeCompositions();
  std::size_t begin = 0, end = table.size() / 3;
  while (begin < end) {
    const std::size_t middle = (begin + end) / 2;
    if (std::pair<char32_t, char32_t>(table[3 * middle], table[3 * middle + 1]) <
        std::pair(first, second)) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  if (begin == table.size() / 3 || table[3 * begin] != first || table[3 * begin + 1] != second) {
    return 0;
  }
  return table[3 * begin + 2];
}

std::string Composer::Nfc(std::string_view text) const {
  // Nothing below U+0300 changes by itself or with another such.
  bool is_simple = true;
  for (const char c : text) is_simple &= static_cast<std::uint8_t>(c) < 0xCC;
  if (is_simple) return std::string(text);
  std::u32string chars;
  chars.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = FirstChar(text.data() + i);
    Decompose(c.code, chars);
    i += c.length;
  }
  // Marks in the order of their classes, equal ones as they came.
  for (std::size_t i = 0; i < chars.size();) {
    std::size_t end = i;
    while (end < chars.size() && CombiningClass(chars[end]) != 0) ++end;
    std::stable_sort(chars.begin() + static_cast<std::ptrdiff_t>(i),
                     chars.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char32_t a, char32_t b) { return CombiningClass(a) < CombiningClass(b); });
    i = end + 1;
  }
  std::u32string composed;
  std::size_t starter = std::u32string::npos;
  int last_class = -1;  // of what lies between the starter and here; −1: nothing does
  for (const char32_t c : chars) {
    const int combining = CombiningClass(c);
    if (starter != std::u32string::npos && last_class < combining) {
      if (const char32_t both = Compose(composed[starter], c); both != 0) {
        composed[starter] = both;
        continue;
      }
    }
    if (combining == 0) {
      starter = composed.size();
      last_class = -1;
    } else {
      last_class = combining;
    }
    composed.push_back(c);
  }
  std::string result;
  result.reserve(text.size());
  for (const char32_t c : composed) AppendUtf8(c, result);
  return result;
}

}  // namespace ait::inline v0::internal
