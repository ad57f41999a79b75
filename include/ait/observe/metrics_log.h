// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OBSERVE_METRICS_LOG_H_
#define AIT_OBSERVE_METRICS_LOG_H_

// metrics.jsonl: one JSON object per step, one line each, appended.
//
// Each line is a single write to a file opened for appending. A process that is killed leaves at
// most one torn line at the end; readers skip it and the next `Open` cuts it off. Lines survive the
// end of the process, not a power failure: they are not synchronised to the disk one by one.
//
//   AIT_ASSIGN_OR_RETURN(auto log, MetricsLog::Open("run/metrics.jsonl"));
//   AIT_RETURN_IF_ERROR(log.Append(metrics));
//
// A run that is resumed appends to the same file; if a step is there twice, the later line counts.
//
// **Thread-safety.** One thread at a time; one process at a time, which `Open` checks.

#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/observe/step_metrics.h"

namespace ait::inline v0 {

class MetricsLog {
 public:
  /// Opens `path` for appending, creates it if it is missing, and cuts off a torn last line. The
  /// directory must exist.
  /// **Errors.** FailedPrecondition: another process (or object) has the log open; else by errno,
  /// with the path.
  static StatusOr<MetricsLog> Open(std::string path);

  MetricsLog(MetricsLog&& other) noexcept;
  MetricsLog& operator=(MetricsLog&& other) noexcept;
  ~MetricsLog();

  /// Appends one line.
  /// **Errors.** ResourceExhausted: the disk is full or a limit is reached; what was written of the
  /// line is taken back, the lines before are whole, and a later call may succeed. Where it cannot
  /// be taken back, later calls try that first, and write nothing until it is.
  Status Append(const StepMetrics& metrics);

  const std::string& path() const { return path_; }

 private:
  MetricsLog(std::string path, int file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  int file_ = -1;
  bool is_torn_ = false;  // the last line is a part of one
};

/// Reads all whole lines of a log; a torn last line is skipped.
/// **Errors.** NotFound, or as the system says why the file cannot be read; DataLoss: a line that
/// is not the last is damaged, with its number.
StatusOr<std::vector<StepMetrics>> ReadMetricsLog(const std::string& path);

}  // namespace ait::inline v0

#endif  // AIT_OBSERVE_METRICS_LOG_H_
