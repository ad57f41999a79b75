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
  /// `preserves_random`: the generators have the state of forward when the segment runs again, and
  /// get back afterwards what they had.
  KeptResults(std::string segment, std::vector<std::string> operators,
              std::vector<at::Generator> generators, bool preserves_random);

  std::int64_t bytes() const { return bytes_; }
  bool has_operators() const { return !operators_.empty(); }

  /// Forward: runs an operation, and keeps its results if they are wanted and new memory.
  void Record(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
              torch::jit::Stack* stack, bool in_scope);
  /// Runs an operation again, or gives the results that were kept. `next` is the place in them.
  void Replay(std::size_t& next, const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
              torch::jit::Stack* stack, bool in_scope) const;
  /// After the last operation that the handler sees: what changed up to here was seen.
  void RenewVersions();

 private:
  /// An operation whose results are kept, or one that has changed such results in place before
  /// anything has read them: then the changed ones are kept, and it is left out as well.
  struct Entry {
    std::string operation;
    bool is_kept = true;    // false: it runs again after all
    std::size_t owner = 0;  // of an operation in place: the entry with the results
    bool is_in_place = false;
    bool is_read = false;  // by an operation since
    std::vector<c10::IValue> results;
    std::vector<SavedVersion> versions;  // of the tensors in results, and of what else shares them
    std::optional<RandomState> random;   // after an operation that draws
  };
  bool Wants(const c10::OperatorHandle& operation, bool in_scope) const;
  Entry* EntryWith(const at::Tensor& tensor);
  const Entry* EntryWith(const at::Tensor& tensor) const;
  void Keep(const c10::OperatorHandle& operation, const torch::jit::Stack& stack);
  bool KeepChanged(const c10::OperatorHandle& operation, const torch::jit::Stack& stack);
  void Forget(Entry& entry);

  const std::string segment_;
  const std::vector<std::string> operators_;
  const std::vector<at::Generator> generators_;
  const bool preserves_random_;
  std::vector<Entry> entries_;
  std::int64_t bytes_ = 0;
  std::optional<std::size_t> changed_;  // an entry whose counters will run after the handler
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
