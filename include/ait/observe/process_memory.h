// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OBSERVE_PROCESS_MEMORY_H_
#define AIT_OBSERVE_PROCESS_MEMORY_H_

// Host memory of this process, as the kernel counts it.
//
//   ProcessMemory memory = ReadProcessMemory();
//   if (memory.resident) Show(*memory.resident);
//
// **Thread-safety.** Safe from any thread. **Cost.** Reads one file of /proc: about 20
// microseconds.

#include <optional>
#include <string>

#include "ait/base/types.h"

namespace ait::inline v0 {

struct ProcessMemory {
  std::optional<Bytes> resident;       // VmRSS: now in memory, shared pages included
  std::optional<Bytes> peak_resident;  // VmHWM: the most it has been
};

/// Reads `<proc>/self/status`. What the file does not say is nullopt.
ProcessMemory ReadProcessMemory(const std::string& proc = "/proc");

}  // namespace ait::inline v0

#endif  // AIT_OBSERVE_PROCESS_MEMORY_H_
