// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_EXAMPLES_03_GPT_GENERATE_H_
#define AIT_EXAMPLES_03_GPT_GENERATE_H_

#include <string>

#include "gpt.h"
#include "options.h"

/// The prompt and `options.tokens` bytes that the model finds likely after it, drawn with the seed.
std::string Continue(GptImpl& model, const Options& options);

#endif  // AIT_EXAMPLES_03_GPT_GENERATE_H_
