// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_PROGRAM_H_
#define AIT_CLI_PROGRAM_H_

// What the subcommands of the `ait` program share.

#include <charconv>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>

#include "ait/base/status.h"

namespace ait::cli {

// Exit codes, those of env(1), timeout(1) and shells. A run has the code of its ranks otherwise.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kWrongUsage = 2;
inline constexpr int kCannotLaunch = 125;
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

/// Prints "ait <subcommand>: <what>" and where help is; returns kWrongUsage.
int FailUsage(std::string_view subcommand, std::string_view what);

/// The same for an error of cxxopts, whose quotes are not ASCII.
int FailUsage(std::string_view subcommand, const std::exception& error);

/// Prints "ait <subcommand>: <message>"; returns `code`.
int Fail(std::string_view subcommand, const Status& status, int code = kFailure);

/// "1 shard", "2 shards".
std::string Counted(std::int64_t count, std::string_view noun);

/// The whole of `text`, the value of `option`, as a number from `least` to `most`; not "nan".
/// **Errors.** InvalidArgument, which names the option and what is `allowed`.
template <typename T>
StatusOr<T> ParseNumber(std::string_view option, const std::string& text, T least, T most,
                        std::string_view allowed) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end && number >= least && number <= most) return number;
  return InvalidArgumentError("option ", option, " cannot be '", text, "': give ", allowed);
}

/// "4096", "64K", "25MiB", "1G" (K, M, G: 1024), at least 1 and at most 1024G, in bytes.
/// **Errors.** InvalidArgument, which names the option.
StatusOr<std::int64_t> ParseByteSize(std::string_view option, std::string text);

}  // namespace ait::cli

#endif  // AIT_CLI_PROGRAM_H_
