// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "data/decode/tokenizer_internal.h"

namespace ait::inline v0 {
namespace internal {

void AddedTokens::Add(std::string_view text, std::int32_t id) {
  std::uint32_t node = 0;
  begins_[static_cast<std::uint8_t>(text.front())] = true;
  for (const char c : text) {
    std::uint32_t next = Step(node, c);
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
      nodes_[node].next.emplace_back(c, next);
    }
    node = next;
  }
  nodes_[node].id = id;
}

std::uint32_t AddedTokens::Step(std::uint32_t node, char c) const {
  for (const auto& [byte, next] : nodes_[node].next) {
    if (byte == c) return next;
  }
  return 0;
}

AddedTokens::Match AddedTokens::FindFirst(std::string_view text) const {
  if (is_empty()) return {};
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    if (!begins_[static_cast<std::uint8_t>(text[begin])]) continue;
    Match match{.begin = begin};
    std::uint32_t node = 0;
    for (std::size_t i = begin; i < text.size(); ++i) {
      node = Step(node, text[i]);
      if (node == 0) break;
      if (nodes_[node].id >= 0) {
        match.size = i + 1 - begin;
        match.id = nodes_[node].id;
      }
    }
    if (match.size > 0) return match;
  }
  return {};
}

}  // namespace internal

namespace {

using internal::AddedTokens;
using internal::Bpe;

/// Added tokens as they are looked for: in the text as given, then in what the normalizer made.
struct Finders {
  AddedTokens raw;
  AddedTokens normalized;
};

}  // namespace

struct Tokenizer::Impl {
  bool is_bytes = false;
  Bpe bpe;
  std::optional<internal::PreTokenizer> cutter;
  std::optional<internal::Composer> composer;
  bool adds_prefix_space = false;
  Finders all;                                                    // with special tokens
  Finders plain;                                                  // without
  std::unordered_map<std::int32_t, TokenizerParts::Added> added;  // by id
  std::unordered_map<std::string, std::int32_t> added_ids;
  std::vector<std::int32_t> before, after;
  std::int32_t vocabulary_size = 256;

  // One for each thread that encodes at the same time, kept for the next.
  std::mutex mutex;
  std::vector<std::unique_ptr<Bpe::Scratch>> scratches;

  std::unique_ptr<Bpe::Scratch> Borrow() {
    {
      const std::scoped_lock lock(mutex);
      if (!scratches.empty()) {
        auto scratch = std::move(scratches.back());
        scratches.pop_back();
        return scratch;
      }
    }
    return std::make_unique<Bpe::Scratch>();
  }
  void Return(std::unique_ptr<Bpe::Scratch> scratch) {
    const std::scoped_lock lock(mutex);
    scratches.push_back(std::move(scratch));
  }

  /// Calls `function` with each part of `text` between tokens that `finder` finds.
  template <typename Function>
  static void Split(std::string_view text, const AddedTokens& finder,
                    std::vector<std::int32_t>& ids, const Function& function) {
    while (!text.empty()) {
      const AddedTokens::Match match = finder.FindFirst(text);
      if (match.size == 0) {
        function(text);
        return;
      }
      if (match.begin > 0) function(text.substr(0, match.begin));
      ids.push_back(match.id);
      text.remove_prefix(match.begin + match.size);
    }
  }

  void EncodePart(std::string_view text, Bpe::Scratch& scratch,
                  std::vector<std::int32_t>& ids) const {
    std::string with_space;
    if (adds_prefix_space && text.front() != ' ') {
      with_space = StrCat(" ", text);
      text = with_space;
    }
    if (!cutter.has_value()) {
      bpe.Encode(text, scratch, ids);
      return;
    }
    while (!text.empty()) {
      const std::size_t size = cutter->Next(text);
      bpe.Encode(text.substr(0, size), scratch, ids);
      text.remove_prefix(size);
    }
  }

  void EncodeAll(std::string_view text, const Finders& finders, Bpe::Scratch& scratch,
                 std::vector<std::int32_t>& ids) const {
    Split(text, finders.raw, ids, [&](std::string_view part) {
      std::string composed;
      if (composer.has_value()) {
        composed = composer->Nfc(part);
        part = composed;
      }
      Split(part, finders.normalized, ids,
            [&](std::string_view rest) { EncodePart(rest, scratch, ids); });
    });
  }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Tokenizer::Ptr Tokenizer::Bytes() {
  auto impl = std::make_unique<Impl>();
  impl->is_bytes = true;
  return Ptr(new Tokenizer(std::move(impl)));
}

StatusOr<Tokenizer::Ptr> TokenizerParts::Build(TokenizerParts parts) {
  auto impl = std::make_unique<Tokenizer::Impl>();
  impl->bpe = std::move(parts.bpe);
  impl->bpe.Finish();
  if (parts.pattern.has_value()) impl->cutter.emplace(*parts.pattern);
  if (parts.composes) impl->composer.emplace();
  impl->adds_prefix_space = parts.adds_prefix_space;
  impl->before = std::move(parts.before);
  impl->after = std::move(parts.after);
  std::size_t size = impl->bpe.tokens().size();
  for (const Added& added : parts.added) {
    if (added.text.empty()) return InvalidArgumentError("token ", added.id, " is an empty text");
    std::string text = added.text;
    if (added.is_normalized && parts.composes) text = impl->composer->Nfc(text);
    const auto add = [&](Finders& finders) {
      (added.is_normalized ? finders.normalized : finders.raw).Add(text, added.id);
    };
    add(impl->all);
    if (!added.is_special) add(impl->plain);
    impl->added_ids[added.text] = added.id;
    impl->added[added.id] = added;
    size = std::max(size, static_cast<std::size_t>(added.id) + 1);
  }
  impl->vocabulary_size = static_cast<std::int32_t>(size);
  return Tokenizer::Ptr(new Tokenizer(std::move(impl)));
}

std::int32_t Tokenizer::vocabulary_size() const { return impl_->vocabulary_size; }

std::optional<std::int32_t> Tokenizer::IdOf(std::string_view token) const {
  if (impl_->is_bytes) {
    if (token.size() != 1) return std::nullopt;
    return static_cast<std::uint8_t>(token[0]);
  }
  const auto added = impl_->added_ids.find(std::string(token));
  if (added != impl_->added_ids.end()) return added->second;
  const std::int32_t* id = impl_->bpe.Find(token);
  return id == nullptr ? std::nullopt : std::optional(*id);
}

Status Tokenizer::Encode(std::string_view text, std::vector<std::int32_t>& ids,
                         const EncodeOptions& options) const {
  if (impl_->is_bytes) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
    ids.insert(ids.end(), bytes, bytes + text.size());
    return OkStatus();
  }
  const std::size_t invalid = internal::FindInvalidUtf8(text);
  if (invalid != text.size()) {
    return InvalidArgumentError("the text is not UTF-8 at byte ", invalid, " of ", text.size());
  }
  if (text.size() > 1U << 30) {
    return InvalidArgumentError("the text has ", text.size(),
                                " bytes; allowed are 2^30: encode it in parts");
  }
  const bool adds_template = options.template_tokens == TemplateTokens::kAdd;
  if (adds_template) ids.insert(ids.end(), impl_->before.begin(), impl_->before.end());
  auto scratch = impl_->Borrow();
  const bool parses = options.special == SpecialTokens::kParse;
  impl_->EncodeAll(text, parses ? impl_->all : impl_->plain, *scratch, ids);
  impl_->Return(std::move(scratch));
  if (adds_template) ids.insert(ids.end(), impl_->after.begin(), impl_->after.end());
  return OkStatus();
}

StatusOr<std::string> Tokenizer::Decode(std::span<const std::int32_t> ids,
                                        SpecialTokens special) const {
  std::string text;
  const auto& tokens = impl_->bpe.tokens();
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= impl_->vocabulary_size) {
      return InvalidArgumentError("token ", id, " is none of 0 to ", impl_->vocabulary_size - 1);
    }
    if (impl_->is_bytes) {
      text.push_back(static_cast<char>(id));
      continue;
    }
    const auto added = impl_->added.find(id);
    const bool is_added = added != impl_->added.end();
    if (is_added && added->second.is_special && special == SpecialTokens::kParse) continue;
    const auto at = static_cast<std::size_t>(id);
    if (at >= tokens.size() || tokens[at].empty()) {
      if (!is_added) return InvalidArgumentError("token ", id, " is not in the vocabulary");
      text += added->second.text;
      continue;
    }
    text += tokens[at];
  }
  return text;
}

}  // namespace ait::inline v0
