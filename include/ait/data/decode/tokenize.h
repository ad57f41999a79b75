// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_TOKENIZE_H_
#define AIT_DATA_DECODE_TOKENIZE_H_

// The transform of text to tokens.
//
//   auto text = Chain({Tokenize({.tokenizer = tokenizer, .append = {end_of_text}}),
//                      Pad({.field = "tokens", .pad = {.length = 512, .too_long = TooLong::kCut}})});

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/data/decode/tokenizer.h"
#include "ait/data/decode/transform.h"

namespace ait::inline v0 {

struct TokenizeOptions {
  std::string field = "txt";
  std::string output = "tokens";
  Tokenizer::Ptr tokenizer;
  EncodeOptions encode = {};
  std::vector<std::int32_t> prepend = {};  // tokens before the text's, such as a begin of text
  std::vector<std::int32_t> append = {};   // and after
  DType dtype = DType::kInt64;
  std::int64_t max_length = std::numeric_limits<std::int64_t>::max();  // all; the rest is cut off
};

/// Makes an array (tokens) of the text. **Errors.** InvalidArgument, a bad sample, if it is not
/// UTF-8; or if a token has no place in the dtype, or there is no tokenizer.
Transform Tokenize(TokenizeOptions options);

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_TOKENIZE_H_
