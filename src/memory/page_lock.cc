// SPDX-License-Identifier: Apache-2.0
#include "memory/page_lock_internal.h"

#include <linux/capability.h>
#include <sys/mman.h>

#include <cerrno>
#include <charconv>
#include <string>

#include "ait/topology/budget.h"
#include "memory/numa_ops_internal.h"
#include "topology/kernel_file_internal.h"

namespace ait::inline v0::internal {
namespace {

/// Whether the limit does not apply: CAP_IPC_LOCK among the effective capabilities.
bool MayLockAnything(std::string_view process_status) {
  const std::string_view text = ValueAfter(process_status, "CapEff:").value_or("");
  std::uint64_t capabilities = 0;
  std::from_chars(text.data(), text.data() + text.size(), capabilities, 16);
  return (capabilities >> CAP_IPC_LOCK & 1) != 0;
}

/// "VmLck:	     128 kB": what is locked now.
std::int64_t LockedNow(std::string_view process_status) {
  const auto words = Words(ValueAfter(process_status, "VmLck:").value_or(""));
  return words.empty() ? 0 : ParseNumber<std::int64_t>(words[0]).value_or(0) * 1024;
}

}  // namespace

int PageLock::Lock(void* address, std::size_t bytes) {
  return mlock(address, bytes) == 0 ? 0 : errno;
}

void PageLock::Unlock(void* address, std::size_t bytes) { munlock(address, bytes); }

int PageLock::NodeOf(void* address) {
  int node = -1;
  const int error = NumaOps::System().Query({&address, 1}, {&node, 1});
  return error == 0 && node >= 0 ? node : -1;
}

int PageLock::CurrentNode() { return NumaOps::System().CurrentNode(); }

PageLock& PageLock::System() {
  static PageLock* const lock = new PageLock;
  return *lock;
}

Status CheckLockLimit(std::size_t bytes, const SystemRoots& roots) {
  const std::string status = ReadKernelFile(roots.proc + "/self/status").value_or("");
  if (MayLockAnything(status)) return OkStatus();
  const StatusOr<Budget> budget = ReadBudget(roots);
  if (!budget.ok() || !budget->limits.locked_memory) return OkStatus();
  const std::int64_t limit = budget->limits.locked_memory->value();
  const std::int64_t locked = LockedNow(status);
  const std::int64_t need = locked + static_cast<std::int64_t>(bytes);
  if (need <= limit) return OkStatus();
  const std::int64_t need_kib = (need + 1023) / 1024;
  return ResourceExhaustedError(
      "cannot lock ", bytes, " bytes: this process may lock ", limit, " bytes (ulimit -l is ",
      limit / 1024, "), holds ", locked, " locked and needs ", need, "; raise it with `ulimit -l ",
      need_kib, "`, with \"memlock ", need_kib,
      "\" in /etc/security/limits.conf, with LimitMEMLOCK=", need,
      " in a systemd unit, or with --ulimit memlock=", need, " for a container");
}

}  // namespace ait::inline v0::internal
