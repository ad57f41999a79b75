// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_COMMUNICATOR_H_
#define AIT_COMM_COMMUNICATOR_H_

// `Communicator`: collectives among the ranks of a group, whatever carries them.
//
// All calls return at once with a `Work`; `.Wait()` makes a call synchronous. Sums are made in rank
// order (0 + 1 + 2 …), so every rank gets the same bits, for any size, on any transport; fp16 and
// bf16 are summed in fp32 and rounded once.
//
//   std::shared_ptr<Communicator> all = world->communicator();
//   std::vector<float> x(1000, static_cast<float>(all->rank().value()));
//   AIT_RETURN_IF_ERROR(all->AllReduce(View(x), ReduceOp::kSum).Wait());
//
// **Collective.** All ranks of the group call the same collectives in the same order; operations
// run in that order. A call that differs between ranks (kind, dtype, count, root, reduction) fails
// on every rank where the transport can see it; see its page.
// **Errors.** (in the Work) InvalidArgument: this rank's arguments do not fit, nothing was sent;
// DeadlineExceeded: some ranks did not come, they are named; Unavailable: a rank died, it is named;
// Aborted: an earlier operation of this group failed; Cancelled.
// **Thread-safety.** One thread at a time issues operations of one communicator; any thread may
// wait.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/buffer.h"
#include "ait/comm/operation.h"
#include "ait/comm/work.h"
#include "ait/memory/resource.h"

namespace ait::inline v0 {

class FlightGroup;
class FlightRecorder;
class Transport;

struct CommunicatorOptions {
  /// Deadline of an operation that does not name its own.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// An operation that waits longer is asked after over the control plane of the `World`, and a
  /// report names who is missing; sooner if its deadline is nearer. Zero: never.
  std::chrono::milliseconds hang_report_after = std::chrono::seconds(5);
  /// Where the operations of this rank are written down (ait/comm/flight_recorder.h); by default a
  /// small recorder of its own, in a `World` one for the process.
  std::shared_ptr<FlightRecorder> recorder;
};

/// Options of one operation.
struct OperationOptions {
  /// Time until the operation is given up; zero takes the communicator's.
  std::chrono::milliseconds timeout{0};
  /// What moves, for error messages: "bucket 3".
  std::string label;
  /// Of ReduceScatter, where `Communicator::reports_reduced`: is called with elements
  /// [begin, begin + count) of this rank's output as soon as they are final, while they are in the
  /// caches; all of them before the Work is done, and no two calls at once. Pieces begin at
  /// multiples of 64 elements. Called by whichever thread carries the operation out, so it must be
  /// short and must not wait. After an error only some pieces may have been told.
  std::function<void(std::int64_t begin, std::int64_t count)> on_reduced;
};

class Communicator {
 public:
  using Options = OperationOptions;

  explicit Communicator(std::unique_ptr<Transport> transport, CommunicatorOptions options = {});
  /// Ends what is in flight with Aborted. Does not wait for peers.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  Rank rank() const;
  WorldSize size() const;
  std::string_view transport_name() const;
  const CommunicatorOptions& options() const;

  /// Copies `buffer` of `root` to all ranks.
  Work Broadcast(Buffer buffer, Rank root, Options options = {});

  /// Reduces `buffer` over all ranks, in place.
  Work AllReduce(Buffer buffer, ReduceOp op, Options options = {});

  /// Reduces `input` over all ranks and gives part r of the result to rank r. The input is
  /// world-size parts, one after the other: equal ones of `output.count`, or of `counts[r]`
  /// elements. `output` may be this rank's part of `input` (in place).
  Work ReduceScatter(ConstBuffer input, Buffer output, ReduceOp op, Options options = {});
  Work ReduceScatter(ConstBuffer input, Buffer output, std::span<const std::int64_t> counts,
                     ReduceOp op, Options options = {});

  /// Gives the `input` of every rank to all, one after the other in rank order: equal ones, or
  /// `counts[r]` elements from rank r. `input` may be this rank's part of `output` (in place).
  Work AllGather(ConstBuffer input, Buffer output, Options options = {});
  Work AllGather(ConstBuffer input, Buffer output, std::span<const std::int64_t> counts,
                 Options options = {});

  /// Sends part r of `input` to rank r and receives part r of `output` from rank r; equal parts, or
  /// `send_counts[r]` and `receive_counts[r]` elements. Input and output do not overlap.
  Work AllToAll(ConstBuffer input, Buffer output, Options options = {});
  Work AllToAll(ConstBuffer input, Buffer output, std::span<const std::int64_t> send_counts,
                std::span<const std::int64_t> receive_counts, Options options = {});

  /// Gathers the `input` of every rank at `root`, in rank order. `output` is used at the root only.
  Work Gather(ConstBuffer input, Buffer output, Rank root, Options options = {});
  Work Gather(ConstBuffer input, Buffer output, std::span<const std::int64_t> counts, Rank root,
              Options options = {});

  /// Gives part r of the root's `input` to rank r. `input` is used at the root only.
  Work Scatter(ConstBuffer input, Buffer output, Rank root, Options options = {});
  Work Scatter(ConstBuffer input, Buffer output, std::span<const std::int64_t> counts, Rank root,
               Options options = {});

  /// Sends to one rank, which receives with the same tag and count. Messages of one pair and tag
  /// keep their order; they are independent of the order of collectives.
  Work Send(ConstBuffer buffer, Rank destination, std::uint32_t tag = 0, Options options = {});
  Work Receive(Buffer buffer, Rank source, std::uint32_t tag = 0, Options options = {});

  /// Ends when all ranks have come.
  Work Barrier(Options options = {});

  /// **Collective. Blocks.** Makes a communicator of the ranks that give the same `color`, ordered
  /// by `key`, then by rank. A negative color gives nullptr: this rank takes part in the call and
  /// in no group.
  StatusOr<std::shared_ptr<Communicator>> Split(int color, int key, Options options = {});

  /// Breaks the group on every rank: everything in flight and later fails with Aborted and
  /// `reason`.
  void Abort(const Status& reason);

  /// **Collective. Blocks.** Over the ranks that are still there, also after the group has broken:
  /// makes a new communicator of those that call it, in the order of their ranks here. The others
  /// must have died or left. **Errors.** DeadlineExceeded names the ranks that live but did not
  /// call; Unavailable over Gloo if rank 0 of the world is gone, which serves the store;
  /// Unimplemented where the transport cannot.
  StatusOr<std::shared_ptr<Communicator>> Survivors(Options options = {});

  /// The last operations of this rank.
  FlightRecorder& recorder() const;

  /// Memory that the peers reach without a copy: buffers in it are reduced in place. An empty
  /// handle where the transport has none; use a heap then. Blocks may outlive the communicator.
  MemoryHandle memory() const;

  /// Whether `OperationOptions::on_reduced` is called; else look at the output when it is there.
  bool reports_reduced() const;

  /// **Collective. Blocks.** The addresses in this process of the `buffer` of every rank, by rank,
  /// its own one too: the peers' memory to read and write without a call. Nothing, on all ranks, if
  /// one of these buffers is out of reach: it is not in `memory()` or the transport has no such
  /// memory. Buffers have the same dtype and count on all ranks.
  ///
  /// Whoever uses them sees to the order: `Barrier` before and after, say. The addresses hold as
  /// long as all ranks keep their buffer and this communicator or its memory lives.
  StatusOr<std::vector<void*>> PeerAddresses(Buffer buffer, Options options = {});

  /// Takes the pages of the peers' memory that this process has touched out of its resident set,
  /// where the kernel would count them for each of the ranks. They stay what they are; the next
  /// touch maps them again, about a microsecond a page, small or huge. Any thread, at any time.
  void ForgetPeerPages();

  /// Says what this rank is doing, so that peers that miss it can tell: "rank 3 … step 812, data,
  /// 14 s ago". `phase` is a few letters ("data", "forward"). Cheap; any thread.
  void Note(std::int64_t step, std::string_view phase);

 private:
  Communicator(std::unique_ptr<Transport> transport, CommunicatorOptions options,
               std::shared_ptr<FlightGroup> group);
  Work Start(Operation operation, Options options);
  Work Issue(Operation operation);
  std::shared_ptr<Communicator> Child(std::unique_ptr<Transport> transport, std::string name,
                                      const std::vector<Rank>& members) const;

  std::unique_ptr<Transport> transport_;
  CommunicatorOptions options_;
  std::shared_ptr<FlightGroup> group_;
  const Rank rank_;
  const WorldSize size_;
  std::uint64_t sequence_ = 0;  // collectives issued
  std::uint64_t splits_ = 0;
  std::uint64_t rebuilds_ = 0;
  std::mutex alone_mutex_;  // a group of one needs no transport to run, only to know that it ended
  Status alone_aborted_;
};

}  // namespace ait::inline v0

#endif  // AIT_COMM_COMMUNICATOR_H_
