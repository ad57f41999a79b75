// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/tokenize.h"

#include <algorithm>
#include <utility>

#include "ait/data/decode/array_ops.h"
#include "data/decode/field_internal.h"

namespace ait::inline v0 {

Transform Tokenize(TokenizeOptions options) {
  return [options = std::move(options)](Sample& sample, SampleRandom&) -> Status {
    if (options.tokenizer == nullptr) {
      return InvalidArgumentError("no tokenizer was given (TokenizeOptions::tokenizer)");
    }
    AIT_ASSIGN_OR_RETURN(const SampleField* field, internal::FieldOf(sample, options.field));
    if (field->kind == FieldKind::kArray) {
      return InvalidArgumentError("field ", field->name, " is an array, not text");
    }
    std::vector<std::int32_t> ids = options.prepend;
    const Status status = options.tokenizer->Encode(field->value.text(), ids, options.encode);
    if (!status.ok()) return Annotate(status, StrCat("field ", field->name));
    ids.insert(ids.end(), options.append.begin(), options.append.end());
    const std::int64_t most = std::max<std::int64_t>(0, options.max_length);
    if (static_cast<std::int64_t>(ids.size()) > most) {
      ids.resize(static_cast<std::size_t>(most));
    }
    AIT_ASSIGN_OR_RETURN(
        SampleField tokens,
        ConvertArray(ArrayField(field->name, DType::kInt32, {static_cast<std::int64_t>(ids.size())},
                                std::as_bytes(std::span(ids))),
                     options.dtype));
    internal::Replace(sample, options.field, options.output, std::move(tokens));
    return OkStatus();
  };
}

}  // namespace ait::inline v0
