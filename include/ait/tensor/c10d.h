// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_C10D_H_
#define AIT_TENSOR_C10D_H_

// c10d, libtorch's own layer of collectives, both ways.
//
// A program that uses c10d (its Reducer, functional collectives, a ProcessGroup) gains ait's
// transports, their rank order, deadlines and messages, by one line:
//
//   group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, ToBackend(communicator));
//
// and a `c10d::Backend` that a site or a vendor has becomes a transport of ait, for a whole World:
//
//   auto world = World::FromEnvironment(
//       {.transport = C10d([](const C10dGroup& group, const C10dStorePtr& store) -> C10dBackendPtr {
//          return c10::make_intrusive<Vendor>(store, group.rank.value(), group.size().value());
//        })});
//
// **Price.** None: it only names c10d's types. Who calls includes c10d's Backend.hpp, which costs
// about 10 CPU-seconds a file. c10d changes with each release of libtorch: ait is built for the one
// that it was configured with.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/communicator.h"
#include "ait/comm/transport.h"
#include "ait/comm/world.h"

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
class Store;
}  // namespace c10d

namespace ait::inline v0 {

class TcpStore;

/// c10::intrusive_ptr of c10d's Backend and Store.
using C10dBackendPtr =
    c10::intrusive_ptr<c10d::Backend,
                       c10::detail::intrusive_target_default_null_type<c10d::Backend>>;

using C10dStorePtr =
    c10::intrusive_ptr<c10d::Store, c10::detail::intrusive_target_default_null_type<c10d::Store>>;

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

/// Who sums.
enum class C10dSums : std::uint8_t {
  /// ait, from messages of the backend, in rank order: what `Transport` promises. For any dtype.
  kRankOrder,
  /// The backend, in its order and precision, for the dtypes it has: as fast as it is, and not the
  /// bits of other transports. All ranks get the same bits only if the backend says so.
  kBackend,
};

/// Whether ranks meet before a collective of the backend.
enum class C10dMeeting : std::uint8_t {
  /// They do: log2(size) empty messages. Only what all ranks mean alike begins, so ranks that
  /// differ, are missing or gone are told of as by other transports.
  kBefore,
  /// They do not, for backends without tagged messages: what happens then is the backend's. Sums in
  /// rank order, uneven parts and Send need messages all the same.
  kNone,
};

struct C10dOptions {
  C10dSums sums = C10dSums::kRankOrder;
  C10dMeeting meeting = C10dMeeting::kBefore;
  /// Is told why a group ended. Outlives the communicators.
  LogSink* log = nullptr;
};

/// A group that wants a backend.
struct C10dGroup {
  std::string name;           // unique in the run
  Rank rank;                  // in the group
  std::vector<Rank> members;  // by rank in the group: rank in the world
  WorldSize size() const { return WorldSize(static_cast<int>(members.size())); }
};

/// Makes the backend of a group, for tensors on the CPU. `store` is the group's own; what is read
/// there throws when the time to connect is over or a member has died. May throw.
using C10dFactory =
    std::function<C10dBackendPtr(const C10dGroup& group, const C10dStorePtr& store)>;

/// Gives `World::FromEnvironment` the backends of c10d that `make` makes, as a transport named
/// "c10d". Collectives that the backend has run there, one at a time; those it lacks, and parts of
/// unequal size, are made of its messages. Its exceptions become Status.
///
/// **Errors.** As of other transports, found out over the TcpStore. An operation that the backend
/// does not end after its deadline is given up a second later; its memory is the backend's until it
/// does.
std::shared_ptr<TransportProvider> C10d(C10dFactory make, C10dOptions options = {});

/// **Collective.** A backend that is there already, as a transport. `store` was joined by exactly
/// its ranks and tells them of deaths and errors. `make` makes the backends of subgroups; without
/// it, `Split` is Unimplemented.
StatusOr<std::unique_ptr<Transport>> FromBackend(C10dBackendPtr backend,
                                                 std::shared_ptr<TcpStore> store,
                                                 C10dFactory make = {}, C10dOptions options = {});

}  // namespace ait::inline v0

#endif  // AIT_TENSOR_C10D_H_
