// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_UNICODE_INTERNAL_H_
#define AIT_DATA_DECODE_UNICODE_INTERNAL_H_

// Characters: UTF-8, the classes that patterns of tokenizers tell apart, and composition (NFC).

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ait::inline v0::internal {

/// Numbers as in make_unicode_table.py.
enum class CharClass : std::uint8_t {
  kOther = 0,
  kUpper = 1,        // Lu, Lt
  kLower = 2,        // Ll
  kOtherLetter = 3,  // Lm, Lo
  kMark = 4,         // M
  kNumber = 5,       // N
  kSpace = 6,        // White_Space
};

// The generated tables.
std::span<const std::uint32_t> UnicodeClasses();
std::span<const std::uint32_t> UnicodeCombining();
std::span<const std::uint32_t> UnicodeCompositions();
std::span<const std::uint32_t> UnicodeDecompositions();

/// Class of every character; one look-up for most.
class CharClasses {
 public:
  CharClasses();
  CharClass Of(char32_t c) const {
    return c < table_.size() ? static_cast<CharClass>(table_[c]) : Search(c);
  }

 private:
  CharClass Search(char32_t c) const;
  std::vector<std::uint8_t> table_;
};

struct Utf8Char {
  char32_t code;
  std::uint32_t length;  // bytes
};

/// The character at the begin of text that is UTF-8 and not empty.
inline Utf8Char FirstChar(const char* text) {
  const auto byte = [text](int i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1FU) << 6 | (byte(1) & 0x3FU), 2};
  if (first < 0xF0) {
    return {(first & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU), 3};
  }
  return {
      (first & 0x07U) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU),
      4};
}

/// Offset of the first byte that is not UTF-8 (Unicode 15, table 3-7); the size if all is.
std::size_t FindInvalidUtf8(std::string_view text);

void AppendUtf8(char32_t c, std::string& text);

/// Normalization form C of UTF-8 (Unicode Standard Annex 15).
class Composer {
 public:
  Composer();
  std::string Nfc(std::string_view text) const;

 private:
  void Decompose(char32_t c, std::u32string& to) const;
  char32_t Compose(char32_t first, char32_t second) const;  // 0 if they stay two

  std::vector<std::uint32_t> by_composed_;  // numbers of compositions, by what they make
};

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_DECODE_UNICODE_INTERNAL_H_
