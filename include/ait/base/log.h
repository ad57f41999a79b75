// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_LOG_H_
#define AIT_BASE_LOG_H_

// Where messages of ait go: a sink that the program hands in. Without a sink they go nowhere.
//
// Errors are returned, not logged; the sink gets what has no caller to return to: a peer that left,
// an object destroyed while work was in flight, a fallback that was taken. Options structs hold a
// `LogSink*` (default nullptr), so two trainers in one process can write to two places.

#include <string_view>

namespace ait::inline v0 {

enum class Severity { kInfo, kWarning, kError };

/// "info", "warning" or "error".
std::string_view Name(Severity severity);

/// Receives messages. The sink outlives the objects that were given it.
/// **Thread-safety.** `Write` may be called from any thread, also from several at once.
class LogSink {
 public:
  virtual ~LogSink() = default;
  /// `component` is the part of ait that speaks, such as "comm"; `message` is one line without a
  /// newline.
  virtual void Write(Severity severity, std::string_view component, std::string_view message) = 0;
};

/// Sends a message to `sink` if there is one.
inline void Log(LogSink* sink, Severity severity, std::string_view component,
                std::string_view message) {
  if (sink != nullptr) sink->Write(severity, component, message);
}

}  // namespace ait::inline v0

#endif  // AIT_BASE_LOG_H_
