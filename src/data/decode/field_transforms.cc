// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/field_transforms.h"

#include <charconv>
#include <utility>

#include "data/decode/field_internal.h"

namespace ait::inline v0 {
namespace internal {

Status MissingField(const Sample& sample, const std::string& name) {
  std::string names;
  for (const SampleField& field : sample.fields) {
    names += StrCat(names.empty() ? "" : ", ", field.name);
  }
  return InvalidArgumentError("sample ", sample.key, " has no field ", name, "; it has ",
                              names.empty() ? "none" : names);
}

StatusOr<SampleField*> FieldOf(Sample& sample, const std::string& name) {
  SampleField* field = sample.Find(name);
  if (field == nullptr) return MissingField(sample, name);
  return field;
}

void Replace(Sample& sample, const std::string& from, const std::string& output,
             SampleField result) {
  const std::string& name = output.empty() ? from : output;
  result.name = name;
  if (name != from) sample.Remove(name);
  if (SampleField* field = sample.Find(from); field != nullptr) {
    *field = std::move(result);
  } else {
    sample.Set(std::move(result));
  }
}

}  // namespace internal

namespace {

using internal::FieldOf;
using internal::Replace;

/// The transform that replaces a field by what `function` makes of it.
template <typename Options, typename Function>
Transform Replacing(Options options, Function function) {
  return [options = std::move(options), function](Sample& sample, SampleRandom&) -> Status {
    AIT_ASSIGN_OR_RETURN(const SampleField* field, FieldOf(sample, options.field));
    AIT_ASSIGN_OR_RETURN(SampleField result, function(*field, options));
    Replace(sample, options.field, options.output, std::move(result));
    return OkStatus();
  };
}

StatusOr<SampleField> Parse(const SampleField& field, const ParseIntegerOptions& options) {
  if (field.kind == FieldKind::kArray) {
    return InvalidArgumentError("field ", field.name, " is an array already, not text");
  }
  std::string_view text = field.value.text();
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  text = begin == text.npos ? std::string_view()
                            : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return InvalidArgumentError("field ", field.name, " is \"", text.substr(0, 40),
                                "\", not an integer");
  }
  if (value < options.begin || value >= options.end) {
    return InvalidArgumentError("field ", field.name, " is ", value, "; allowed are ",
                                options.begin, " to ", options.end - 1);
  }
  return ConvertArray(
      ArrayField(field.name, DType::kInt64, {}, std::as_bytes(std::span(&value, 1))),
      options.dtype);
}

}  // namespace

Transform ParseInteger(ParseIntegerOptions options) { return Replacing(std::move(options), Parse); }

Transform OneHot(OneHotOptions options) {
  return Replacing(std::move(options), [](const SampleField& field, const OneHotOptions& o) {
    return OneHotArray(field, o.classes, o.dtype);
  });
}

Transform Pad(PadFieldOptions options) {
  return Replacing(std::move(options), [](const SampleField& field, const PadFieldOptions& o) {
    return PadArray(field, o.pad);
  });
}

Transform ConvertType(ConvertTypeOptions options) {
  return Replacing(std::move(options), [](const SampleField& field, const ConvertTypeOptions& o) {
    return ConvertArray(field, o.dtype);
  });
}

Transform Rename(std::string from, std::string to) {
  return [from = std::move(from), to = std::move(to)](Sample& sample, SampleRandom&) -> Status {
    AIT_ASSIGN_OR_RETURN(const SampleField* field, FieldOf(sample, from));
    Replace(sample, from, to, *field);
    return OkStatus();
  };
}

Transform Select(std::vector<std::string> fields) {
  return [fields = std::move(fields)](Sample& sample, SampleRandom&) -> Status {
    std::vector<SampleField> kept;
    for (const std::string& name : fields) {
      AIT_ASSIGN_OR_RETURN(const SampleField* field, FieldOf(sample, name));
      kept.push_back(*field);
    }
    sample.fields = std::move(kept);
    return OkStatus();
  };
}

Transform Drop(std::vector<std::string> fields) {
  return [fields = std::move(fields)](Sample& sample, SampleRandom&) -> Status {
    for (const std::string& name : fields) sample.Remove(name);
    return OkStatus();
  };
}

}  // namespace ait::inline v0
