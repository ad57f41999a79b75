// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_OFFLOAD_H_
#define AIT_OPTIM_OFFLOAD_H_

// Optimizer state on a file of a local disk instead of in memory.
//
// State is used once a step, front to back: the update of a slice reads the state of its next
// chunks and writes that of its last ones while it computes (io_uring and O_DIRECT where the kernel
// and the file system have them, else reads and writes of a thread). What it costs is the disk's
// time: 16 bytes a parameter and step for AdamW, read and written together.
//
//   DataParallel::Create(communicator, parameters, {.offload = {.directory = "/nvme/state"}});

#include <string>

#include "ait/base/status.h"
#include "ait/base/types.h"

namespace ait::inline v0 {

/// Where state goes.
struct StateOffload {
  /// Of a local disk; empty: state stays in memory. Each rank makes a file without a name in it, so
  /// that nothing is left behind however the process ends.
  std::string directory;
  /// State that is read or written at a time, and how many such pieces are in memory at once.
  Bytes chunk = MiB(4);  // 64 KiB to 256 MiB
  int chunks = 4;        // 3 to 64

  bool enabled() const { return !directory.empty(); }
  /// **Errors.** InvalidArgument: a size or number that is not allowed.
  Status Validate() const;
};

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_OFFLOAD_H_
