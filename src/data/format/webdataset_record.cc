// SPDX-License-Identifier: Apache-2.0
#include "data/format/webdataset_record_internal.h"

#include <unordered_map>

namespace ait::inline v0::internal {
namespace {

// A sample of more is damage or an attack.
constexpr std::size_t kMaxFields = 4096;

// "__name__" and what lies below it describe the shard, not a sample.
bool IsMetadata(std::string_view name) {
  if (!name.starts_with("__")) return false;
  const std::string_view first = name.substr(0, name.find('/'));
  return first.size() >= 4 && first.ends_with("__");
}

void AssignLowerCase(std::string& out, std::string_view text) {
  out.assign(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
}

}  // namespace

KeyedName SplitName(std::string_view name, KeyRule rule) {
  // ^((?:.*/|)[^.]+)[.]([^/]*)$, as WebDataset and Energon have it.
  if (IsMetadata(name)) return {};
  const std::size_t slash = name.rfind('/');
  const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  std::size_t dot = name.find('.', base);
  if (dot == std::string_view::npos) return {};
  if (dot == base) {
    // "dir/.hidden": the expression then takes "dir/" for the key, if "dir" is free of dots.
    if (base == 0) return {};
    const std::string_view above = name.substr(0, slash);
    const std::size_t begin = above.rfind('/');
    if (above.find('.', begin == std::string_view::npos ? 0 : begin) != std::string_view::npos) {
      return {};
    }
  } else if (rule == KeyRule::kLastDot) {
    dot = name.rfind('.');
  }
  return {true, name.substr(0, dot), name.substr(dot + 1)};
}

void WebDatasetRecord::Clear() {
  field_count_ = 0;
  key_.clear();
}

WebDatasetRecord::Take WebDatasetRecord::Offer(const TarMember& member, std::int64_t data_at) {
  if (member.kind == TarKind::kDirectory) return Take::kIgnored;
  const KeyedName split = SplitName(member.name, rule_);
  if (!split.is_field) return Take::kIgnored;
  if (field_count_ == 0) {
    key_.assign(split.key);
  } else if (split.key != key_) {
    return Take::kOther;
  }
  if (field_count_ > kMaxFields) return Take::kTaken;  // Fill will say so
  if (field_count_ == fields_.size()) fields_.emplace_back();
  Field& field = fields_[field_count_++];
  AssignLowerCase(field.name, split.extension);
  field.kind = member.kind;
  field.data_at = data_at;
  field.size_bytes = member.size_bytes;
  if (member.kind != TarKind::kFile) {
    field.link.assign(member.link);
    field.refusal = member.refusal;
  }
  return Take::kTaken;
}

Status WebDatasetRecord::Fill(const ByteView& bytes, const LinkResolver& links,
                              std::int64_t most_bytes, Sample& sample) const {
  if (field_count_ > kMaxFields) {
    return InvalidArgumentError("sample '", key_, "' has more than ", kMaxFields, " fields");
  }
  sample.key.assign(key_);
  sample.fields.resize(field_count_);
  std::int64_t rest_bytes = most_bytes - static_cast<std::int64_t>(bytes.size_bytes());
  std::unordered_map<std::string_view, ByteView> linked;
  for (std::size_t i = 0; i < field_count_; ++i) {
    const Field& from = fields_[i];
    SampleField& to = sample.fields[i];
    for (std::size_t earlier = 0; earlier < i; ++earlier) {
      if (fields_[earlier].name == from.name) {
        return InvalidArgumentError("sample '", key_, "' has two fields '", from.name, "'");
      }
    }
    if (from.kind == TarKind::kRefused) {
      return InvalidArgumentError("'", key_, ".", from.name, "' is ", from.refusal,
                                  ", which is not read; pack the file itself");
    }
    to.name.assign(from.name);
    to.kind = FieldKind::kBytes;
    to.dtype = DType::kUInt8;
    to.shape.clear();
    if (from.kind == TarKind::kHardLink) {
      const auto [target, is_new] = linked.try_emplace(from.link);
      if (is_new) {
        StatusOr<ByteView> found = links.Resolve(from.link, rest_bytes);
        if (!found.ok()) {
          return Annotate(found.status(), StrCat("'", key_, ".", from.name, "' is a hard link"));
        }
        rest_bytes -= static_cast<std::int64_t>(found->size_bytes());
        target->second = *std::move(found);
      }
      to.value = target->second;
    } else {
      to.value = bytes.Slice(static_cast<std::size_t>(from.data_at),
                             static_cast<std::size_t>(from.size_bytes));
    }
  }
  return OkStatus();
}

}  // namespace ait::inline v0::internal
