// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_IO_RING_H_
#define AIT_BASE_IO_RING_H_

// io_uring of the kernel: reads and writes that are under way while the caller does other things.
// Not a public header. Where ait is built without liburing `Open` is an error, as it is where the
// kernel or a container refuses: whoever uses a ring has another way.
//
//   AIT_ASSIGN_OR_RETURN(auto ring, IoRing::Open(8, IoRing::Threads::kOne));
//   AIT_RETURN_IF_ERROR(ring->Start({.fd = fd, .data = data, .bytes = n, .tag = &request}));
//   AIT_ASSIGN_OR_RETURN(const IoRing::Done done, ring->Wait());

#include <cstdint>
#include <memory>
#include <optional>

#include "ait/base/status.h"

namespace ait::inline v0::internal {

/// **Thread-safety.** None: one thread at a time; see `Threads`. It does not survive a fork.
class IoRing {
 public:
  enum class Threads {
    kOne,   // only the thread that opened it: completions come when that thread asks, which is
            // cheapest (SINGLE_ISSUER and DEFER_TASKRUN, where the kernel has them)
    kMany,  // one after the other; what one started another may wait for
  };
  enum class Kind : std::uint8_t { kRead, kWrite };
  struct Request {
    Kind kind = Kind::kRead;
    int fd = -1;
    std::byte* data = nullptr;
    std::uint32_t bytes = 0;
    std::uint64_t offset = 0;
    void* tag = nullptr;
  };
  struct Done {
    void* tag = nullptr;
    std::int64_t result = 0;  // bytes moved, which may be fewer than asked for, or −errno
  };

  /// **Errors.** Those of the kernel; Unimplemented without liburing.
  static StatusOr<std::unique_ptr<IoRing>> Open(int depth, Threads threads);

  /// Nothing is under way any more, or the process is a forked child.
  virtual ~IoRing() = default;

  /// At most `depth` requests at a time. **Errors.** Internal: more; those of the kernel.
  virtual Status Start(const Request& request) = 0;
  /// A request that has ended, if the kernel has said so.
  virtual StatusOr<std::optional<Done>> Poll() = 0;
  /// **Blocks.** Until a request has ended; something must be under way.
  virtual StatusOr<Done> Wait() = 0;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_BASE_IO_RING_H_
