// SPDX-License-Identifier: Apache-2.0
// Files of ranks of tiktoken: lines of a token in base64, a blank and its rank.
#include <array>
#include <charconv>
#include <string>

#include "data/decode/tokenizer_internal.h"

namespace ait::inline v0 {
namespace {

constexpr std::int32_t kMaxTokens = 1 << 24;

/// Strict: a multiple of four digits, padded. False if it is not.
bool DecodeBase64(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  const auto digit = [](char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  for (std::size_t i = 0; i < text.size(); i += 4) {
    const bool is_last = i + 4 == text.size();
    int pads = 0;
    if (is_last && text[i + 3] == '=') pads = text[i + 2] == '=' ? 2 : 1;
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const int value = k < static_cast<std::size_t>(4 - pads) ? digit(text[i + k]) : 0;
      if (value < 0) return false;
      bits = bits << 6 | static_cast<std::uint32_t>(value);
    }
    for (int k = 0; k < 3 - pads; ++k) {
      bytes.push_back(static_cast<char>(bits >> (16 - 8 * k) & 0xFF));
    }
  }
  return true;
}

}  // namespace

StatusOr<Tokenizer::Ptr> Tokenizer::FromTiktoken(std::string_view ranks,
                                                 const TiktokenOptions& options) {
  TokenizerParts parts;
  AIT_ASSIGN_OR_RETURN(parts.pattern, internal::FindPattern(options.pattern));
  std::vector<std::string> tokens;
  std::string bytes;
  for (std::int64_t number = 1; !ranks.empty(); ++number) {
    const std::size_t end = ranks.find('\n');
    std::string_view line = ranks.substr(0, end);
    ranks.remove_prefix(end == ranks.npos ? ranks.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t blank = line.find(' ');
    const std::string_view digits = blank == line.npos ? "" : line.substr(blank + 1);
    std::int32_t rank = -1;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (blank == line.npos || error != std::errc() || stop != digits.data() + digits.size() ||
        rank < 0 || rank >= kMaxTokens || !DecodeBase64(line.substr(0, blank), bytes)) {
      return InvalidArgumentError("line ", number, " of the file of ranks is \"",
                                  line.substr(0, 60), "\", not base64, a blank and a rank below ",
                                  kMaxTokens);
    }
    const auto at = static_cast<std::size_t>(rank);
    if (at >= tokens.size()) tokens.resize(at + 1);
    if (!tokens[at].empty()) {
      return InvalidArgumentError("line ", number, " of the file of ranks has rank ", rank,
                                  ", which an earlier line has");
    }
    tokens[at] = bytes;
  }
  for (const auto& [text, id] : options.special_tokens) {
    if (id < 0 || id >= kMaxTokens) {
      return InvalidArgumentError("special token ", text, " has id ", id, "; allowed are 0 to ",
                                  kMaxTokens - 1);
    }
    if (static_cast<std::size_t>(id) < tokens.size() &&
        !tokens[static_cast<std::size_t>(id)].empty()) {
      return InvalidArgumentError("special token ", text, " has id ", id,
                                  ", which a token of the file has");
    }
    parts.added.push_back({.text = text, .id = id, .is_special = true});
  }
  AIT_RETURN_IF_ERROR(parts.bpe.SetTokens(std::move(tokens), /*takes_whole_pieces=*/true));
  parts.bpe.AddPairsOfRanks();
  return TokenizerParts::Build(std::move(parts));
}

}  // namespace ait::inline v0
