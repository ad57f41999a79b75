// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/process_memory.h"

#include <malloc.h>

#include <algorithm>
#include <fstream>

#include "observe/memory_text_internal.h"

namespace ait::inline v0 {
namespace {

using internal::KibibytesOf;

}  // namespace

ProcessMemory ReadProcessMemory(const std::string& proc) {
  ProcessMemory memory;
  std::ifstream status(proc + "/self/status");
  for (std::string line; std::getline(status, line);) {
    if (const auto bytes = KibibytesOf(line, "VmRSS:")) memory.resident = bytes;
    if (const auto bytes = KibibytesOf(line, "VmHWM:")) memory.peak_resident = bytes;
    if (const auto bytes = KibibytesOf(line, "RssAnon:")) memory.anonymous = bytes;
    if (const auto bytes = KibibytesOf(line, "RssFile:")) memory.file = bytes;
    if (const auto bytes = KibibytesOf(line, "RssShmem:")) memory.shared = bytes;
    if (const auto bytes = KibibytesOf(line, "VmSwap:")) memory.swapped = bytes;
    if (const auto bytes = KibibytesOf(line, "VmSize:")) memory.address_space = bytes;
    if (const auto bytes = KibibytesOf(line, "VmData:")) memory.data = bytes;
  }
  return memory;
}

std::optional<Bytes> ReadProportionalMemory(const std::string& proc) {
  std::ifstream rollup(proc + "/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (const auto bytes = KibibytesOf(line, "Pss:")) return bytes;
  }
  return std::nullopt;
}

std::optional<MallocMemory> ReadMallocMemory() {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 info = ::mallinfo2();
  // Another malloc in glibc's place leaves glibc's own one without a single byte.
  if (info.arena == 0 && info.hblkhd == 0) return std::nullopt;
  return MallocMemory{.in_use = Bytes(static_cast<std::int64_t>(info.uordblks + info.hblkhd)),
                      .held = Bytes(static_cast<std::int64_t>(info.fordblks))};
#else
  return std::nullopt;
#endif
}

ResidentSplit Split(const ProcessMemory& memory, std::optional<std::int64_t> live_bytes) {
  ResidentSplit split{.live = {}, .held = {}, .file = memory.file, .shared = memory.shared};
  if (!live_bytes) return split;
  split.live = Bytes(*live_bytes);
  if (memory.anonymous)
    split.held = Bytes(std::max<std::int64_t>(memory.anonymous->value() - *live_bytes, 0));
  return split;
}

}  // namespace ait::inline v0
