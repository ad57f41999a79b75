// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_MPI_SESSION_H_
#define AIT_COMM_MPI_SESSION_H_

// MPI of this process: initialised once, finalised when nobody needs it any more.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "ait/base/status.h"

namespace ait::inline v0::internal {

class MpiSession {
 public:
  /// The one of the process; initialises MPI if nobody has. **Errors.** FailedPrecondition, see
  /// ait/comm/mpi.h.
  static StatusOr<std::shared_ptr<MpiSession>> Join();
  ~MpiSession();

  /// The largest tag that messages may have.
  int largest_tag() const { return largest_tag_; }

 private:
  /// What the thread that initialises and finalises MPI shares with the others; it may outlive the
  /// session, if finalising hangs because a peer is gone.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    Status status;
    bool ready = false, leaving = false, finalized = false;
  };

  MpiSession() = default;
  Status Begin();

  std::shared_ptr<State> state_;  // null if the program initialised MPI
  int largest_tag_ = 0;
};

/// What MPI says of an error, with the call that failed; ok for MPI_SUCCESS.
Status StatusOfMpi(int error, const char* call);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_MPI_SESSION_H_
