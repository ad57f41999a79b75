// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NCCL_BOARD_H_
#define AIT_COMM_NCCL_BOARD_H_

// What the ranks of an NCCL group tell each other beside NCCL, over the store: that the group has
// ended and why, that a rank has left, and what a rank that is stuck is doing.
//
// Only looked at while operations are in flight, and not more often than the store of a large group
// can stand: one counter, "word/<group>", says whether there is news.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/operation.h"
#include "ait/comm/store.h"

namespace ait::inline v0::internal {

/// **Thread-safety.** `PublishEnd` from any thread; the rest from one at a time.
class NcclBoard {
 public:
  struct Options {
    std::shared_ptr<Store> store;
    std::function<std::vector<Rank>()> departed;  // ranks of the world that died; may be empty
    std::string name;                             // of the group; unique in the store
    int rank = 0;                                 // in the group
    std::vector<Rank> members;                    // by rank in the group: rank in the world
  };
  /// What a rank that is stuck says of itself.
  struct Record {
    std::uint64_t sequence = 0;
    std::uint64_t signature = 0;
    std::string description;
  };

  explicit NcclBoard(Options options);
  const Options& options() const { return options_; }

  void PublishEnd(const Status& reason);
  /// `finished` is the sequence number of the last collective that this rank has seen the end of.
  void PublishLeft(std::uint64_t finished);
  void PublishRecord(const Operation& operation, std::uint64_t signature,
                     const std::string& description);

  /// Reads what is new; at once if `now` is set, else if the time has come.
  enum class When { kNow, kInTime };
  void Look(When when);
  /// Why another rank ended the group.
  const std::optional<Status>& end() const { return end_; }
  /// Ranks that left, and the last collective that each took part in.
  const std::map<int, std::uint64_t>& left() const { return left_; }
  /// "rank 1 died", or "rank 1 (3 of the world) died"; nothing while all are alive.
  std::optional<Status> Death();

  /// The records that ranks have published for collective `sequence`; for any, if it is 0.
  std::map<int, Record> Records(std::uint64_t sequence);

  /// "NAME/<group>".
  std::string Key(std::string_view what) const;
  Store& store() const { return *options_.store; }

 private:
  const Options options_;
  const Duration period_;
  Time next_look_{};
  std::int64_t seen_ = 0;
  std::optional<Status> end_;
  std::map<int, std::uint64_t> left_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_NCCL_BOARD_H_
