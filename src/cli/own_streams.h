// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_OWN_STREAMS_H_
#define AIT_CLI_OWN_STREAMS_H_

#include <functional>
#include <string_view>
#include <utility>

#include "ait/launch/launcher.h"

namespace ait::cli {

/// Standard output and standard error of this process, in which no text is lost silently.
class OwnStreams {
 public:
  /// `on_closed` is called once for each stream that nobody reads any more. SIGPIPE is ignored.
  explicit OwnStreams(std::function<void()> on_closed) : on_closed_(std::move(on_closed)) {}

  /// Writes all of `text`. **Blocks.** Until it is taken, also if the stream is non-blocking: that
  /// is a property of the pipe, which any process that shares it may have set. After an error,
  /// which is reported once on standard error, nothing more is written to that stream.
  void Write(RankStream stream, std::string_view text);

 private:
  void Fail(RankStream stream, int error_number);

  std::function<void()> on_closed_;
  bool failed_[2] = {false, false};
};

}  // namespace ait::cli

#endif  // AIT_CLI_OWN_STREAMS_H_
