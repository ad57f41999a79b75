// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_SURVIVORS_H_
#define AIT_COMM_SURVIVORS_H_

// How the ranks that are left of a group agree, through the store, on who they are, and make a new
// group of it that all of them have or none.
//
// It goes in attempts. Everybody who calls says so ("here"). The lowest rank that is alive waits
// until everybody who is alive is there and writes the members down ("decision"); if it dies, the
// next one does. The members build the group and say how that went ("ready", "failed"). When all
// are ready, that is the group; when one failed or died before, another attempt begins.
//
// What makes it sure: the store hears the last word of a rank before it notices that it is gone, so
// whoever sees a death first, and looks for a key then, sees every key that the dead one wrote.
//
// The store is served by rank 0 of the world: its death is the end of the run.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/tcp_store.h"

namespace ait::inline v0::internal {

class SurvivorAgreement {
 public:
  struct Options {
    std::shared_ptr<TcpStore> store;
    std::string name;           // of the group; unique in the run
    Rank rank;                  // in the group
    std::vector<Rank> members;  // by rank in the group: rank in the world
    /// True if this rank of the group has left it, though its process lives.
    std::function<StatusOr<bool>(Rank rank)> has_left;
  };
  /// Makes the group of `members` (ranks of the old one); `attempt` is the same on all of them and
  /// no other attempt's. A group that was made before is of no more use.
  using Build = std::function<Status(const std::vector<Rank>& members, std::uint64_t attempt,
                                     Deadline deadline)>;

  explicit SurvivorAgreement(Options options) : options_(std::move(options)) {}

  /// **Collective. Blocks.** Returns the members of the group that was built last. May be called
  /// again after an error.
  /// **Errors.** DeadlineExceeded names the ranks that live but did not call; Unavailable: rank 0
  /// of the world is gone; the error of `build` if nobody died.
  StatusOr<std::vector<Rank>> Run(const Build& build, Deadline deadline);

 private:
  StatusOr<std::vector<Rank>> Decide(Deadline deadline);
  StatusOr<bool> Commit(const std::vector<Rank>& members, const Status& built, Deadline deadline);
  StatusOr<std::vector<bool>> Gone() const;
  StatusOr<bool> Has(const std::string& key) const { return options_.store->Contains(key); }
  std::string Key(std::string_view what) const;
  std::string Key(std::string_view what, int rank) const;

  const Options options_;
  std::uint64_t attempt_ = 1;  // the same on all ranks
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_SURVIVORS_H_
