// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_LAUNCH_HOST_GROUP_INTERNAL_H_
#define AIT_LAUNCH_HOST_GROUP_INTERNAL_H_

// The launchers of a run over several hosts: they number the ranks, stop together and end together.
//
// They meet in a TcpStore that the launcher of host 0 serves; it also tells at once when one of
// them dies. What happens first anywhere, a failure or a signal, is the end of the run everywhere.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/tcp_store.h"
#include "ait/launch/launcher.h"
#include "launch/fd_internal.h"

namespace ait::inline v0::internal {

/// Set in a byte of a wake pipe whose signal was sent to the launcher of another host.
inline constexpr unsigned char kOtherHost = 0x80;

class HostGroup {
 public:
  /// **Collective. Blocks.** Until the launchers of all hosts have met.
  /// **Errors.** Those of TcpStore::Create.
  static StatusOr<std::unique_ptr<HostGroup>> Join(const LaunchHosts& hosts, int local_ranks);
  /// Before `AwaitEnd` it means that this host has given up, which the others are told.
  ~HostGroup();

  int first_rank() const { return first_rank_; }
  int world_size() const { return world_size_; }

  /// **Collective.** What host 0 gives is known on all hosts after it.
  Status Share(std::string& run_id, int& port);

  /// From now on `wake` gets a byte when this host should stop: kOtherHost with the signal that
  /// stops the run, or 0 if a rank has failed or a launcher has died elsewhere. `wake` outlives the
  /// group.
  void Wake(const FileDescriptor& wake);

  /// A failure, as the result of the run tells it.
  struct Failure {
    int host = 0;
    int code = 0;
    std::optional<Rank> rank;
    std::string text;
  };
  /// Tells the others of a failure here, unless they told of one before; and of a signal.
  void Fail(const Failure& failure);
  void Stop(int signal);

  /// **Blocks.** Until the ranks of all hosts have ended, or a launcher has died. A signal that
  /// comes in by `wake` is passed on; after a second one it waits no longer.
  void AwaitEnd(const FileDescriptor& wake);

  /// What came first, if anything did.
  std::optional<Failure> first_failure();

 private:
  HostGroup(std::unique_ptr<TcpStore> store, LaunchHosts hosts)
      : store_(std::move(store)), hosts_(std::move(hosts)) {}

  void CountEnd();

  std::unique_ptr<TcpStore> store_;
  LaunchHosts hosts_;
  std::vector<std::string> names_;  // of the hosts
  int first_rank_ = 0;
  int world_size_ = 0;
  bool ended_ = false;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_LAUNCH_HOST_GROUP_INTERNAL_H_
