// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OBSERVE_PROCESS_MEMORY_H_
#define AIT_OBSERVE_PROCESS_MEMORY_H_

// Host memory of this process, as the kernel and malloc count it.
//
//   ProcessMemory memory = ReadProcessMemory();
//   if (memory.resident) Show(*memory.resident);
//   ResidentSplit split = Split(memory, counted->statistics().current_bytes);   // who has it
//
// What cannot be read is nullopt, never zero.
//
// **Thread-safety.** Safe from any thread. **Cost.** `ReadProcessMemory` reads one file of /proc:
// about 20 microseconds.

#include <cstdint>
#include <optional>
#include <string>

#include "ait/base/types.h"

namespace ait::inline v0 {

struct ProcessMemory {
  std::optional<Bytes> resident;       // VmRSS: now in memory, shared pages included
  std::optional<Bytes> peak_resident;  // VmHWM: the most it has been
  // The parts of `resident`:
  std::optional<Bytes> anonymous;  // RssAnon: of malloc, of stacks, of private mappings
  std::optional<Bytes> file;       // RssFile: code, and files that are mapped; can be dropped
  std::optional<Bytes> shared;     // RssShmem: memory shared with others, such as shared arenas

  std::optional<Bytes> swapped;        // VmSwap: pushed out
  std::optional<Bytes> address_space;  // VmSize: all mappings, which RLIMIT_AS bounds
  std::optional<Bytes> data;           // VmData: private mappings, which RLIMIT_DATA bounds
};

/// Reads `<proc>/self/status`. What the file does not say is nullopt.
ProcessMemory ReadProcessMemory(const std::string& proc = "/proc");

/// Resident memory in which a page that n processes share counts as 1/n: what to add up over the
/// ranks of a host. Reads `<proc>/self/smaps_rollup`, which walks all page tables: 20 microseconds
/// to some milliseconds.
std::optional<Bytes> ReadProportionalMemory(const std::string& proc = "/proc");

/// What glibc's malloc says; nullopt where malloc is another one, or does not tell.
struct MallocMemory {
  Bytes in_use;  // in blocks that are not free, those with mappings of their own included
  Bytes held;    // free, and not given back to the system
};
std::optional<MallocMemory> ReadMallocMemory();

/// Resident memory by who has it.
struct ResidentSplit {
  std::optional<Bytes> live;  // in blocks that are in use, as far as they were counted
  std::optional<Bytes> held;  // the rest of anonymous memory: free blocks that allocators keep, the
                              // gaps between blocks, stacks, and what nobody counted
  std::optional<Bytes> file;  // of files
  std::optional<Bytes> shared;  // with other processes
};

/// Splits `memory`; `live_bytes` are the bytes that the program counts as in use, in memory that is
/// not shared. What was allocated and not touched is not resident: then `held` is too small.
ResidentSplit Split(const ProcessMemory& memory, std::optional<std::int64_t> live_bytes);

}  // namespace ait::inline v0

#endif  // AIT_OBSERVE_PROCESS_MEMORY_H_
