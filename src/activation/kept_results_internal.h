// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_KEPT_RESULTS_INTERNAL_H_
#define AIT_ACTIVATION_KEPT_RESULTS_INTERNAL_H_

// The results that a segment keeps, in the order of their operations.
//
// Autograd runs as ever, in forward and again, and saves what it saves. Below it stands a handler
// for all operators under a dispatch key of libtorch that nothing else uses: where it is asked, it
// runs the operator and keeps the result, or leaves the operator out and gives the result.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "activation/saved_version_internal.h"
#include "activation/thread_state_internal.h"
// Keep the order.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace ait::inline v0::internal {

class KeptResults {
 public:
  KeptResults(std::string segment, std::vector<std::string> operators,
              std::vector<at::Generator> generators);

  /// Whether forward has kept anything.
  bool empty() const { return entries_.empty(); }
  std::int64_t bytes() const { return bytes_; }
  bool Wants(const c10::OperatorHandle& operation) const;
  bool has_operators() const { return !operators_.empty(); }

  /// Runs an operation of forward and keeps its results.
  void Record(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
              torch::jit::Stack* stack);
  /// Gives the results of operation `number`, or runs it if they were not kept.
  void Replay(std::size_t number, const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
              torch::jit::Stack* stack) const;
  /// The tensors that an operation changes in place are not kept any more.
  void Forget(const c10::OperatorHandle& operation, const torch::jit::Stack& stack);

 private:
  struct Entry {
    std::string operation;
    bool is_kept = true;
    std::vector<c10::IValue> results;
    std::vector<SavedVersion> versions;  // of the tensors in results
    std::optional<RandomState> random;   // after an operation that draws
  };
  const std::string segment_;
  const std::vector<std::string> operators_;
  const std::vector<at::Generator> generators_;
  std::vector<Entry> entries_;
  std::int64_t bytes_ = 0;
};

/// The segment that this thread runs, for the handler.
struct KeepContext {
  KeptResults* recorded = nullptr;        // in forward
  const KeptResults* replayed = nullptr;  // when it runs again
  std::size_t next = 0;                   // of replayed
  int scopes = 0;                         // open ones
};

/// `context` is that of this thread until the end.
class [[nodiscard]] KeepContextScope {
 public:
  /// **Errors.** StatusException, if `handles` and the dispatch key has been taken.
  KeepContextScope(KeepContext context, bool handles);
  ~KeepContextScope();
  KeepContextScope(const KeepContextScope&) = delete;
  KeepContextScope& operator=(const KeepContextScope&) = delete;

 private:
  KeepContext context_;
  KeepContext* before_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> handled_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_KEPT_RESULTS_INTERNAL_H_
