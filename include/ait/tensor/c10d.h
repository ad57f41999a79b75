// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_C10D_H_
#define AIT_TENSOR_C10D_H_

// c10d, libtorch's own layer of collectives, over ait.
//
// A program that uses c10d (its Reducer, functional collectives, a ProcessGroup) gains ait's
// transports, their rank order, deadlines and messages, by one line:
//
//   group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, ToBackend(communicator));
//
// **Price.** None: it only names c10d's types. Who calls includes c10d's Backend.hpp, which costs
// about 10 CPU-seconds a file. c10d changes with each release of libtorch: ait is built for the one
// that it was configured with.

#include <memory>

#include "ait/comm/communicator.h"

namespace c10 {
namespace detail {
template <class Target>
struct intrusive_target_default_null_type;
}  // namespace detail
template <class Target, class NullType>
class intrusive_ptr;
}  // namespace c10
namespace c10d {
class Backend;
}  // namespace c10d

namespace ait::inline v0 {

/// c10::intrusive_ptr<c10d::Backend>.
using C10dBackendPtr =
    c10::intrusive_ptr<c10d::Backend,
                       c10::detail::intrusive_target_default_null_type<c10d::Backend>>;

/// The communicator as a backend of c10d, named "ait", for tensors on the CPU. Every collective of
/// libtorch's Backend is there, with or without tensors that are contiguous; only receiving from
/// any source and sparse all-reduce are refused. Sums are in rank order; those of fp16 and bf16 in
/// fp32, rounded once. What moves without arithmetic may have any dtype. Bitwise reductions and
/// `reduce` are made of other collectives.
///
/// Calls return at once; the Work and its Future are completed by a thread of the transport, on
/// which callbacks of the Future run. An error is a c10::DistBackendError (c10::ValueError for bad
/// arguments) with ait's text. `allocateTensor` gives memory that the peers reach without a copy,
/// where the transport has it; c10d's Reducer asks for it if DDP_DISABLE_COMM_MEM=0 is set.
///
/// **Collective.** `split` is one, over all ranks. **Thread-safety.** Calls may come from any
/// thread, in the same order on every rank.
C10dBackendPtr ToBackend(std::shared_ptr<Communicator> communicator);

}  // namespace ait::inline v0

#endif  // AIT_TENSOR_C10D_H_
