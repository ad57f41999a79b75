// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_STORE_H_
#define AIT_COMM_STORE_H_

// `Store`: the key-value board at which ranks meet before they can talk, and on which they leave
// word when something fails. Small values, few keys; not a data path.
//
//   if (rank == Rank(0)) store.Set("id", id);
//   const Deadline deadline = Deadline::After(std::chrono::seconds(30));
//   AIT_ASSIGN_OR_RETURN(std::string id, store.Get("id", deadline));
//
// **Thread-safety.** All calls may come from any thread, several at once.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"

namespace ait::inline v0 {

class Store {
 public:
  virtual ~Store() = default;

  /// Sets `key`; an old value is replaced.
  virtual Status Set(std::string_view key, std::string_view value) = 0;

  /// **Blocks.** Until `key` is set, then returns its value. DeadlineExceeded names the key;
  /// Unavailable if the store is gone.
  virtual StatusOr<std::string> Get(std::string_view key, Deadline deadline) = 0;

  /// Adds to the integer at `key` (0 if unset) and returns the new value.
  virtual StatusOr<std::int64_t> Add(std::string_view key, std::int64_t amount) = 0;

  /// True if `key` is set now.
  virtual StatusOr<bool> Contains(std::string_view key) = 0;
};

/// A store inside this process, for ranks that are threads, and for tests.
std::shared_ptr<Store> MakeProcessStore();

}  // namespace ait::inline v0

#endif  // AIT_COMM_STORE_H_
