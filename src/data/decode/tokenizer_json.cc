// SPDX-License-Identifier: Apache-2.0
// tokenizer.json of Hugging Face tokenizers, as far as it is byte-level BPE. What is not done here
// is refused by its name.
#include <array>
#include <string>
#include <unordered_map>

#include "data/decode/tokenizer_internal.h"
#include "data/input_file_internal.h"
#include "nlohmann/json.hpp"

namespace ait::inline v0 {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxId = 1 << 24;
constexpr std::int64_t kMaxFileBytes = 512 << 20;

Status Refused(std::string_view what, std::string_view known) {
  return UnimplementedError("the tokenizer.json asks for ", what, "; done is ", known);
}

/// A member; null if it is missing.
const Json& Get(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

std::string Text(const Json& value) {
  return value.is_string() ? value.get_ref<const std::string&>() : std::string();
}

bool IsTrue(const Json& object, const char* key, bool otherwise) {
  const Json& value = Get(object, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

/// The elements of a "Sequence" under `key`, or the object itself; null is none.
std::vector<const Json*> Steps(const Json& object, const char* key) {
  if (object.is_null()) return {};
  const Json& inner = Get(object, key);
  if (Text(Get(object, "type")) != "Sequence" || !inner.is_array()) return {&object};
  std::vector<const Json*> steps;
  for (const Json& step : inner) steps.push_back(&step);
  return steps;
}

/// Bytes written as printable characters, as GPT-2 began: byte b is this character.
std::array<char32_t, 256> ByteAlphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = 256;
  for (char32_t b = 0; b < 256; ++b) {
    const bool is_printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xFF && b != 0xAD);
    alphabet[b] = is_printable ? b : next++;
  }
  return alphabet;
}

/// The bytes of a token in that alphabet; false if it has other characters.
bool FromAlphabet(const std::string& token, const std::array<std::int16_t, 512>& byte_of,
                  std::string& bytes) {
  bytes.clear();
  for (std::size_t i = 0; i < token.size();) {
    const internal::Utf8Char c = internal::FirstChar(token.data() + i);
    if (c.code >= byte_of.size() || byte_of[c.code] < 0) return false;
    bytes.push_back(static_cast<char>(byte_of[c.code]));
    i += c.length;
  }
  return true;
}

Status ReadNormalizer(const Json& root, TokenizerParts& parts) {
  for (const Json* step : Steps(Get(root, "normalizer"), "normalizers")) {
    const std::string type = Text(Get(*step, "type"));
    if (type != "NFC") return Refused(StrCat("the normalizer ", type), "NFC or none");
    parts.composes = true;
  }
  return OkStatus();
}

Status ReadPreTokenizer(const Json& root, TokenizerParts& parts) {
  bool has_bytes = false;
  for (const Json* step : Steps(Get(root, "pre_tokenizer"), "pretokenizers")) {
    const std::string type = Text(Get(*step, "type"));
    if (has_bytes) return Refused(StrCat("the pre-tokenizer ", type, " after ByteLevel"), "none");
    if (type == "ByteLevel") {
      has_bytes = true;
      parts.adds_prefix_space = IsTrue(*step, "add_prefix_space", true);
      if (IsTrue(*step, "use_regex", true)) {
        if (parts.pattern.has_value()) return Refused("two patterns", "one");
        AIT_ASSIGN_OR_RETURN(parts.pattern, internal::FindPattern("gpt2"));
      } else if (parts.adds_prefix_space && parts.pattern.has_value()) {
        return Refused("add_prefix_space after a Split", "add_prefix_space with ByteLevel alone");
      }
    } else if (type == "Split") {
      if (parts.pattern.has_value()) return Refused("two patterns", "one");
      const std::string behavior = Text(Get(*step, "behavior"));
      const bool is_inverted = IsTrue(*step, "invert", false);
      // Patterns match all characters, so that matches kept and the rest removed is the same.
      const bool is_known =
          (behavior == "Isolated" && !is_inverted) || (behavior == "Removed" && is_inverted);
      if (!is_known) return Refused(StrCat("Split with behavior ", behavior), "Isolated");
      const Json& expression = Get(Get(*step, "pattern"), "Regex");
      if (!expression.is_string()) return Refused("Split at a string", "Split by a Regex");
      AIT_ASSIGN_OR_RETURN(parts.pattern, internal::FindPattern(Text(expression)));
    } else {
      return Refused(StrCat("the pre-tokenizer ", type), "Split and ByteLevel");
    }
  }
  if (!has_bytes) return Refused("a pre-tokenizer without ByteLevel", "byte-level BPE");
  return OkStatus();
}

Status ReadAdded(const Json& root, TokenizerParts& parts) {
  const Json& added = Get(root, "added_tokens");
  if (added.is_null()) return OkStatus();
  if (!added.is_array()) return InvalidArgumentError("added_tokens is not an array");
  for (const Json& entry : added) {
    const Json& id = Get(entry, "id");
    const std::string text = Text(Get(entry, "content"));
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= kMaxId ||
        text.empty()) {
      return InvalidArgumentError("an entry of added_tokens has no id below ", kMaxId,
                                  " or no content");
    }
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
      if (IsTrue(entry, flag, false)) {
        return Refused(StrCat(flag, " of the added token ", text), "none of it");
      }
    }
    const bool is_special = IsTrue(entry, "special", false);
    parts.added.push_back({.text = text,
                           .id = id.get<std::int32_t>(),
                           .is_special = is_special,
                           .is_normalized = IsTrue(entry, "normalized", !is_special)});
  }
  return OkStatus();
}

Status ReadModel(const Json& root, TokenizerParts& parts) {
  const Json& model = Get(root, "model");
  const std::string type = Text(Get(model, "type"));
  if (!type.empty() && type != "BPE") return Refused(StrCat("the model ", type), "BPE");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!Text(Get(model, key)).empty()) return Refused(key, "none of it");
  }
  if (const Json& dropout = Get(model, "dropout"); dropout.is_number() && dropout != 0) {
    return Refused("dropout", "none of it");
  }
  const Json& vocabulary = Get(model, "vocab");
  const Json& merges = Get(model, "merges");
  if (!vocabulary.is_object() || !merges.is_array()) {
    return InvalidArgumentError("the model of the tokenizer.json has no vocab or no merges");
  }
  std::array<std::int16_t, 512> byte_of;
  byte_of.fill(-1);
  const auto alphabet = ByteAlphabet();
  for (std::size_t b = 0; b < 256; ++b) byte_of[alphabet[b]] = static_cast<std::int16_t>(b);

  std::vector<std::string> tokens;
  std::unordered_map<std::string_view, std::int32_t> ids;
  std::string bytes;
  for (const auto& [token, id] : vocabulary.items()) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= kMaxId) {
      return InvalidArgumentError("token ", token, " has no id below ", kMaxId);
    }
    const auto at = id.get<std::size_t>();
    if (at >= tokens.size()) tokens.resize(at + 1);
    tokens[at] = FromAlphabet(token, byte_of, bytes) ? bytes : token;
  }
  for (auto entry = vocabulary.begin(); entry != vocabulary.end(); ++entry) {
    ids.emplace(entry.key(), entry.value().get<std::int32_t>());
  }
  AIT_RETURN_IF_ERROR(
      parts.bpe.SetTokens(std::move(tokens), IsTrue(model, "ignore_merges", false)));
  std::uint32_t rank = 0;
  for (const Json& merge : merges) {
    std::string left, right;
    if (merge.is_array() && merge.size() == 2) {
      left = Text(merge[0]);
      right = Text(merge[1]);
    } else if (const std::string pair = Text(merge); pair.find(' ') != pair.npos) {
      left = pair.substr(0, pair.find(' '));
      right = pair.substr(pair.find(' ') + 1);
    }
    const auto left_id = ids.find(left);
    const auto right_id = ids.find(right);
    const std::string joined_text = left + right;
    const auto joined = ids.find(joined_text);
    if (left_id == ids.end() || right_id == ids.end() || joined == ids.end()) {
      return InvalidArgumentError("merge ", rank, " (", left, " and ", right,
                                  ") is not of tokens of the vocabulary");
    }
    parts.bpe.AddPair(left_id->second, right_id->second, rank++, joined->second);
  }
  return OkStatus();
}

/// Where the text stands in a template, and the tokens around it.
Status ReadTemplate(const Json& step, TokenizerParts& parts) {
  const Json& single = Get(step, "single");
  const Json& special = Get(step, "special_tokens");
  if (!single.is_array()) return InvalidArgumentError("TemplateProcessing has no single");
  std::vector<std::int32_t>* side = &parts.before;
  for (const Json& piece : single) {
    if (piece.is_object() && piece.contains("Sequence")) {
      if (side == &parts.after) return Refused("a template with the text twice", "once");
      side = &parts.after;
      continue;
    }
    const std::string name = Text(Get(Get(piece, "SpecialToken"), "id"));
    const Json& ids = Get(Get(special, name.c_str()), "ids");
    if (!ids.is_array()) return InvalidArgumentError("the template has no ids for ", name);
    for (const Json& id : ids) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
          id.get<std::int64_t>() >= kMaxId) {
        return InvalidArgumentError("the template has no ids for ", name);
      }
      side->push_back(id.get<std::int32_t>());
    }
  }
  return OkStatus();
}

Status ReadPostProcessor(const Json& root, TokenizerParts& parts) {
  for (const Json* step : Steps(Get(root, "post_processor"), "processors")) {
    const std::string type = Text(Get(*step, "type"));
    if (type == "ByteLevel") continue;  // changes offsets only
    if (type != "TemplateProcessing") {
      return Refused(StrCat("the post-processor ", type), "TemplateProcessing and ByteLevel");
    }
    AIT_RETURN_IF_ERROR(ReadTemplate(*step, parts));
  }
  return OkStatus();
}

Status ReadRest(const Json& root) {
  for (const char* key : {"truncation", "padding"}) {
    if (!Get(root, key).is_null()) {
      return Refused(key, "none of it; set it to null, and cut or pad with Tokenize and Pad");
    }
  }
  for (const Json* step : Steps(Get(root, "decoder"), "decoders")) {
    const std::string type = Text(Get(*step, "type"));
    if (type != "ByteLevel") return Refused(StrCat("the decoder ", type), "ByteLevel");
  }
  return OkStatus();
}

}  // namespace

StatusOr<Tokenizer::Ptr> Tokenizer::FromJson(std::string_view json) {
  const Json root = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded() || !root.is_object()) {
    return InvalidArgumentError("the tokenizer.json is not a JSON object");
  }
  TokenizerParts parts;
  AIT_RETURN_IF_ERROR(ReadRest(root));
  AIT_RETURN_IF_ERROR(ReadNormalizer(root, parts));
  AIT_RETURN_IF_ERROR(ReadPreTokenizer(root, parts));
  AIT_RETURN_IF_ERROR(ReadAdded(root, parts));
  AIT_RETURN_IF_ERROR(ReadModel(root, parts));
  AIT_RETURN_IF_ERROR(ReadPostProcessor(root, parts));
  return TokenizerParts::Build(std::move(parts));
}

StatusOr<Tokenizer::Ptr> Tokenizer::OpenJson(const std::string& path) {
  AIT_ASSIGN_OR_RETURN(const std::string json, internal::ReadSmallFile(path, kMaxFileBytes));
  StatusOr<Ptr> tokenizer = FromJson(json);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  return tokenizer;
}

StatusOr<Tokenizer::Ptr> Tokenizer::OpenTiktoken(const std::string& path,
                                                 const TiktokenOptions& options) {
  AIT_ASSIGN_OR_RETURN(const std::string ranks, internal::ReadSmallFile(path, kMaxFileBytes));
  StatusOr<Ptr> tokenizer = FromTiktoken(ranks, options);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  return tokenizer;
}

}  // namespace ait::inline v0
