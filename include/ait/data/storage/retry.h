// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_RETRY_H_
#define AIT_DATA_STORAGE_RETRY_H_

// How often and how long a remote storage is asked again.
//
// A request is tried until it is answered, `max_tries` are used up, or `deadline` has passed since
// its first try, whichever comes first. Between two tries it waits: twice as long each time, and of
// that a random part, so that many readers that were turned away together do not come back
// together. What can be asked again: no connection, a lost one, an answer that is too short, a
// stalled one, and the answers 408, 429, 500, 502, 503 and 504. Anything else is an answer.
//
//   auto storage = S3Storage::Create({.http = {.retry = {.deadline = std::chrono::minutes(2)}}});

#include <chrono>

#include "ait/base/status.h"

namespace ait::inline v0 {

struct RetryOptions {
  int max_tries = 8;                               // 1 to 100, the first included
  std::chrono::milliseconds first_wait{100};       // > 0
  std::chrono::milliseconds max_wait{10'000};      // ≥ first_wait
  std::chrono::milliseconds deadline{5 * 60'000};  // > 0; of one request with all its tries
};

/// **Errors.** InvalidArgument: an option out of its range.
Status Check(const RetryOptions& options);

/// How long to wait after try `tries` (1 is the first): a part of min(max_wait, first_wait ·
/// 2^(tries − 1)) that `random` in [0, 1) chooses, from its half to the whole ("equal jitter").
std::chrono::milliseconds WaitAfter(const RetryOptions& options, int tries, double random);

/// Whether an answer with this HTTP status says "later" rather than "no".
bool IsTransientHttpStatus(int http_status);

}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_RETRY_H_
