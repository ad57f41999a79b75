// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_LOG_FILES_H_
#define AIT_CLI_LOG_FILES_H_

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "ait/launch/launcher.h"

namespace ait::cli {

/// Keeps what each rank writes in a file of its own, DIR/rank-N.log, and passes it on.
class LogFiles final : public RankOutput {
 public:
  explicit LogFiles(RankOutput* next) : next_(next) {}

  /// Makes the folder if it is not there; files of an earlier run are overwritten. Call it before
  /// `Write`. **Errors.** Those of the file system.
  Status Open(const std::string& folder, int first_rank, int count);

  void Write(Rank rank, RankStream stream, std::string_view text) override;

  /// The first error while writing. The run goes on without its logs: they are not the run.
  const Status& status() const { return status_; }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  RankOutput* next_;
  int first_rank_ = 0;
  std::vector<std::unique_ptr<std::FILE, Closer>> files_;
  Status status_;
};

}  // namespace ait::cli

#endif  // AIT_CLI_LOG_FILES_H_
