// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/retry.h"

#include <algorithm>

namespace ait::inline v0 {

Status Check(const RetryOptions& options) {
  if (options.max_tries < 1 || options.max_tries > 100) {
    return InvalidArgumentError("max_tries is ", options.max_tries, "; 1 to 100 are possible");
  }
  if (options.first_wait.count() <= 0 || options.max_wait < options.first_wait) {
    return InvalidArgumentError("waits of ", options.first_wait.count(), " to ",
                                options.max_wait.count(),
                                " ms between tries; the first is more than 0 and the longest no "
                                "shorter");
  }
  if (options.deadline.count() <= 0) {
    return InvalidArgumentError("a deadline of ", options.deadline.count(),
                                " ms; it is more than 0");
  }
  return OkStatus();
}

std::chrono::milliseconds WaitAfter(const RetryOptions& options, int tries, double random) {
  std::chrono::milliseconds whole = options.first_wait;
  for (int i = 1; i < tries && whole < options.max_wait; ++i) whole *= 2;
  whole = std::min(whole, options.max_wait);
  const double part = 0.5 + 0.5 * std::clamp(random, 0.0, 1.0);
  return std::chrono::milliseconds(std::max<std::int64_t>(
      1, static_cast<std::int64_t>(part * static_cast<double>(whole.count()))));
}

bool IsTransientHttpStatus(int http_status) {
  switch (http_status) {
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
      return true;
    default:
      return false;
  }
}

}  // namespace ait::inline v0
