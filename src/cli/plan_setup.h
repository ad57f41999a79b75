// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_PLAN_SETUP_H_
#define AIT_CLI_PLAN_SETUP_H_

// What `ait plan` was asked, from its options.

#include <cstdint>
#include <cxxopts.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ait/activation/memory_model.h"

namespace ait::cli {

struct PlanQuestion {
  TrainingSetup setup;      // but for the stage and what depends on it
  std::vector<int> stages;  // ascending
  std::optional<Bytes> budget;
  std::string precision;
  std::vector<std::string> notes;  // of what was assumed
};

/// **Errors.** InvalidArgument, which names the option.
StatusOr<PlanQuestion> ReadQuestion(const cxxopts::ParseResult& parsed);

/// "7B" is 7'000'000'000, "512MiB" 536'870'912.
/// **Errors.** InvalidArgument: it is none, is below 1 or does not fit; names the option.
StatusOr<std::int64_t> ParseSize(std::string_view option, const std::string& text);

}  // namespace ait::cli

#endif  // AIT_CLI_PLAN_SETUP_H_
