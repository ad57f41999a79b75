// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_BINDING_H_
#define AIT_TOPOLOGY_BINDING_H_

// Binds the calling thread to CPUs, reads the binding back, and puts the old one back.
//
// Needs no privilege, also in containers. Threads and processes started later inherit the binding;
// those that run already do not. Memory that a bound thread touches first lies on its node.
//
//   AIT_RETURN_IF_ERROR(BindThisThread(division.ranks[local_rank].cpus));
//
//   AIT_ASSIGN_OR_RETURN(ScopedBinding binding, ScopedBinding::Create(node.cpus));
//   TouchPages(block);                                    // then the thread is free again

#include "ait/base/status.h"
#include "ait/topology/id_set.h"

namespace ait::inline v0 {

/// Lets the calling thread run on `cpus` and nowhere else, and checks that it is so.
/// **Errors.** InvalidArgument: the set is empty. FailedPrecondition: some of the CPUs are offline
/// or outside the cgroup's cpuset (the text names them); the binding is then as it was.
/// PermissionDenied: the call is forbidden.
Status BindThisThread(const CpuSet& cpus);

/// The CPUs that the calling thread may run on.
StatusOr<CpuSet> ThisThreadBinding();

/// A binding that ends with the scope. Made and destroyed on the same thread; if destroyed on
/// another, it is still the first thread that gets its old binding back.
class [[nodiscard]] ScopedBinding {
 public:
  /// **Errors.** Those of BindThisThread.
  static StatusOr<ScopedBinding> Create(const CpuSet& cpus);

  ScopedBinding(ScopedBinding&& other) noexcept;
  ScopedBinding& operator=(ScopedBinding&& other) noexcept;
  ~ScopedBinding();

 private:
  ScopedBinding(int thread_id, CpuSet previous);
  void Restore();

  int thread_id_;  // as the kernel counts; 0 after a move
  CpuSet previous_;
};

}  // namespace ait::inline v0

#endif  // AIT_TOPOLOGY_BINDING_H_
