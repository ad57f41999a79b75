// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/binding.h"

#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace ait::inline v0 {
namespace {

// The kernel wants a mask at least as long as its own, whose length it does not tell.
constexpr std::size_t kBitsPerSet = CPU_SETSIZE;
constexpr std::size_t kMostSets = IdSet::kMaxId / kBitsPerSet + 1;

StatusOr<CpuSet> BindingOf(int thread_id) {
  for (std::size_t sets = 1; sets <= kMostSets; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    const std::size_t size = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(thread_id, size, mask.data()) == 0) {
      CpuSet cpus;
      for (std::size_t cpu = 0; cpu < sets * kBitsPerSet; ++cpu) {
        if (CPU_ISSET_S(cpu, size, mask.data())) cpus.Add(static_cast<int>(cpu));
      }
      return cpus;
    }
    if (errno != EINVAL) break;
  }
  return ErrnoError(errno, "reading the CPU binding of thread ", thread_id);
}

/// errno, or 0.
int Bind(int thread_id, const CpuSet& cpus) {
  std::vector<cpu_set_t> mask(kMostSets);
  const std::size_t size = kMostSets * sizeof(cpu_set_t);
  for (int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), size, mask.data());
  return sched_setaffinity(thread_id, size, mask.data()) == 0 ? 0 : errno;
}

}  // namespace

Status BindThisThread(const CpuSet& cpus) {
  if (cpus.empty()) {
    return InvalidArgumentError("cannot bind a thread to an empty set of CPUs; name at least one");
  }
  const int thread_id = gettid();
  AIT_ASSIGN_OR_RETURN(const CpuSet previous, BindingOf(thread_id));
  const int error = Bind(thread_id, cpus);
  if (error != 0 && error != EINVAL) {
    return ErrnoError(error, "binding thread ", thread_id, " to CPUs ", cpus.ToString());
  }
  CpuSet bound;
  if (error == 0) {
    AIT_ASSIGN_OR_RETURN(bound, BindingOf(thread_id));
  }
  if (bound == cpus) return OkStatus();
  if (error == 0) Bind(thread_id, previous);
  return FailedPreconditionError("cannot bind thread ", thread_id, " to CPUs ", cpus.ToString(),
                                 ": ", (cpus - bound).ToString(),
                                 " are offline or not in the cpuset of its cgroup; it stays on ",
                                 previous.ToString());
}

StatusOr<CpuSet> ThisThreadBinding() { return BindingOf(gettid()); }

StatusOr<ScopedBinding> ScopedBinding::Create(const CpuSet& cpus) {
  AIT_ASSIGN_OR_RETURN(CpuSet previous, ThisThreadBinding());
  AIT_RETURN_IF_ERROR(BindThisThread(cpus));
  return ScopedBinding(gettid(), std::move(previous));
}

ScopedBinding::ScopedBinding(int thread_id, CpuSet previous)
    : thread_id_(thread_id), previous_(std::move(previous)) {}

ScopedBinding::ScopedBinding(ScopedBinding&& other) noexcept
    : thread_id_(std::exchange(other.thread_id_, 0)), previous_(std::move(other.previous_)) {}

ScopedBinding& ScopedBinding::operator=(ScopedBinding&& other) noexcept {
  if (this != &other) {
    Restore();
    thread_id_ = std::exchange(other.thread_id_, 0);
    previous_ = std::move(other.previous_);
  }
  return *this;
}

ScopedBinding::~ScopedBinding() { Restore(); }

void ScopedBinding::Restore() {
  if (thread_id_ != 0) Bind(std::exchange(thread_id_, 0), previous_);
}

}  // namespace ait::inline v0
