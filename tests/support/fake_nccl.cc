// SPDX-License-Identifier: Apache-2.0
// The NCCL of the fake GPU; see fake_gpu.h. Ranks are threads of this process.
//
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "support/fake_gpu_internal.h"
#include "support/fake_nccl_kernels.h"

namespace {

using ait::testing::Fake;
using ait::testing::FakeGpuFaults;
using ait::testing::FakeGpuState;
using Call = ait::testing::FakeCall;
using Kind = Call::Kind;

struct World;

/// One collective, or one message: the calls of those that take part, as they come.
struct Meeting {
  std::map<int, Call> calls;  // by rank
  bool done = false;
};

/// Which meeting a call belongs to: the n-th collective, or the n-th message from one to another.
using MeetingKey = std::tuple<int, int, std::uint64_t>;
constexpr int kAll = 1 << 20;  // more than any rank

struct SplitCall {
  std::vector<std::optional<std::pair<int, int>>> wishes;  // color, key
  int arrived = 0;
  std::map<int, std::shared_ptr<World>> worlds;  // by color
};

struct World {
  explicit World(int size) : size(size), joined(static_cast<std::size_t>(size)) {}
  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> joined;
  std::map<MeetingKey, Meeting> meetings;
  std::map<std::uint64_t, SplitCall> splits;
};

/// What streams share with the communicator that gave them work.
struct End {
  std::shared_ptr<World> world;
  int rank = 0;
  bool aborted = false;  // with the lock of the world
  int inside = 0;        // kernels that run
};

std::mutex worlds_mutex;
std::map<std::uint64_t, std::shared_ptr<World>>& Worlds() {
  static auto* const worlds = new std::map<std::uint64_t, std::shared_ptr<World>>;
  return *worlds;
}

/// The kernel of one rank: waits for what the others have to do in it.
void RunKernel(const std::shared_ptr<End>& end,
               const std::vector<std::pair<MeetingKey, Call>>& calls) {
  World& world = *end->world;
  std::unique_lock lock(world.mutex);
  if (end->aborted) return;
  ++end->inside;
  for (const auto& [key, call] : calls) {
    Meeting& meeting = world.meetings[key];
    const auto [from, to, number] = key;
    // A message to oneself has two calls of one rank.
    meeting.calls[call.kind == Kind::kReceive ? ~end->rank : end->rank] = call;
    if (from == kAll && static_cast<int>(meeting.calls.size()) == world.size) {
      std::vector<const Call*> all;
      for (const auto& [rank, one] : meeting.calls) all.push_back(&one);
      meeting.done = ait::testing::RunFakeCollective(all);
    } else if (from != kAll && meeting.calls.size() == 2) {
      ait::testing::RunFakeMessage(meeting.calls[from], meeting.calls[~to]);
      meeting.done = true;
    }
  }
  world.changed.notify_all();
  const auto done = [&] {
    return std::all_of(calls.begin(), calls.end(),
                       [&](const auto& call) { return world.meetings[call.first].done; });
  };
  world.changed.wait(lock, [&] { return done() || end->aborted; });
  if (!done()) {  // its memory may go away
    for (const auto& [key, call] : calls) {
      if (world.meetings[key].done) continue;
      world.meetings[key].calls.erase(call.kind == Kind::kReceive ? ~end->rank : end->rank);
    }
  }
  --end->inside;
  world.changed.notify_all();
}

}  // namespace

struct ncclComm {
  std::shared_ptr<End> end;
  std::map<std::pair<int, int>, std::uint64_t> numbers;  // of the next meetings
  std::uint64_t splits = 0;
  bool blocking = true;
  bool ready = false;  // init has come to its end
  int polls = 0;
  std::function<void()> pending;  // launched when the polls are used up
  ncclComm_t* child = nullptr;    // where a split puts its result
  std::uint64_t child_split = 0;
};

namespace {

thread_local int group_depth = 0;
struct Grouped {
  ncclComm_t comm;
  Call call;
  cudaStream_t stream;
};
std::vector<Grouped>& Group() {
  thread_local std::vector<Grouped> group;
  return group;
}

ncclComm_t MakeComm(std::shared_ptr<World> world, int rank, const ncclConfig_t* config) {
  auto* comm = new ncclComm;
  comm->end = std::make_shared<End>();
  comm->end->world = std::move(world);
  comm->end->rank = rank;
  comm->blocking = config == nullptr || config->blocking != 0;
  comm->polls = FakeGpuState().init_polls;
  std::lock_guard lock(Fake().mutex);
  ++Fake().counts.communicators;
  return comm;
}

void Join(ncclComm& comm) {
  World& world = *comm.end->world;
  std::lock_guard lock(world.mutex);
  world.joined[static_cast<std::size_t>(comm.end->rank)] = true;
  world.changed.notify_all();
}

ncclResult_t Launched(ncclComm_t comm, std::vector<Call> calls, cudaStream_t stream) {
  std::vector<std::pair<MeetingKey, Call>> keyed;
  for (const Call& call : calls) {
    const int self = comm->end->rank;
    std::pair<int, int> who(kAll, kAll);
    if (call.kind == Kind::kSend) who = {self, call.peer};
    if (call.kind == Kind::kReceive) who = {call.peer, self};
    // Of a message to oneself both calls have one number.
    std::uint64_t& next =
        comm->numbers[call.kind == Kind::kReceive ? std::pair(~who.first, ~who.second) : who];
    keyed.emplace_back(MeetingKey(who.first, who.second, next++), call);
  }
  auto launch = [end = comm->end, keyed = std::move(keyed), stream] {
    ait::testing::FakeEnqueue(stream, [=] { RunKernel(end, keyed); });
  };
  comm->polls = comm->blocking ? 0 : FakeGpuState().call_polls;
  if (comm->polls == 0) {
    launch();
    return ncclSuccess;
  }
  comm->pending = std::move(launch);
  return ncclInProgress;
}

ncclResult_t Enqueue(ncclComm_t comm, Call call, cudaStream_t stream) {
  if (!comm->ready || comm->pending || comm->child != nullptr) return ncclInvalidUsage;
  if (group_depth > 0) {
    Group().push_back({comm, call, stream});
    return ncclSuccess;
  }
  return Launched(comm, {call}, stream);
}

void Free(ncclComm_t comm) {
  delete comm;
  std::lock_guard lock(Fake().mutex);
  --Fake().counts.communicators;
}

/// What a split of `parent` comes to, if all have called it.
bool FinishSplit(ncclComm& parent) {
  World& world = *parent.end->world;
  std::lock_guard lock(world.mutex);
  SplitCall& split = world.splits[parent.child_split];
  if (split.arrived < world.size) return false;
  const auto [color, key] = *split.wishes[static_cast<std::size_t>(parent.end->rank)];
  ncclComm_t* target = std::exchange(parent.child, nullptr);
  *target = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return true;
  int size = 0;
  int rank = 0;
  for (int other = 0; other < world.size; ++other) {
    const auto& wish = *split.wishes[static_cast<std::size_t>(other)];
    if (wish.first != color) continue;
    ++size;
    rank += std::pair(wish.second, other) < std::pair(key, parent.end->rank);
  }
  std::shared_ptr<World>& made = split.worlds[color];
  if (made == nullptr) made = std::make_shared<World>(size);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = parent.blocking;
  *target = MakeComm(made, rank, &config);
  Join(**target);
  return true;
}

}  // namespace

// NOLINTBEGIN: the names are NCCL's.
extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const int forced = FakeGpuState().nccl_version;
  *version = forced != 0 ? forced : NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::lock_guard lock(worlds_mutex);
  static std::uint64_t last = 0;
  ++last;
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id->internal, &last, sizeof(last));
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "an error of the fake NCCL";
}

const char* ncclGetLastError(ncclComm_t) { return "the fake NCCL's last words"; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (const int result = FakeGpuState().init_result; result != 0) {
    return static_cast<ncclResult_t>(result);
  }
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  std::shared_ptr<World> world;
  {
    std::lock_guard lock(worlds_mutex);
    std::shared_ptr<World>& known = Worlds()[number];
    if (known == nullptr) known = std::make_shared<World>(ranks);
    world = known;
  }
  {
    std::lock_guard lock(Fake().mutex);
    ++Fake().counts.inits;
  }
  *comm = MakeComm(world, rank, config);
  Join(**comm);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  const FakeGpuFaults faults = FakeGpuState();
  *result = ncclSuccess;
  if (faults.async_error != 0 &&
      (faults.async_error_rank < 0 || faults.async_error_rank == comm->end->rank)) {
    *result = static_cast<ncclResult_t>(faults.async_error);
    return ncclSuccess;
  }
  *result = ncclInProgress;
  if (!comm->ready) {
    World& world = *comm->end->world;
    std::lock_guard lock(world.mutex);
    const bool all =
        std::all_of(world.joined.begin(), world.joined.end(), [](bool b) { return b; });
    if (!all || comm->polls-- > 0) return ncclSuccess;
    comm->ready = true;
  } else if (comm->child != nullptr) {
    if (!FinishSplit(*comm)) return ncclSuccess;
  } else if (comm->pending) {
    if (--comm->polls > 0) return ncclSuccess;
    std::exchange(comm->pending, nullptr)();
  }
  *result = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t*) {
  if (!comm->ready || comm->pending || comm->child != nullptr) return ncclInvalidUsage;
  World& world = *comm->end->world;
  {
    std::lock_guard lock(world.mutex);
    comm->child_split = comm->splits++;
    SplitCall& split = world.splits[comm->child_split];
    split.wishes.resize(static_cast<std::size_t>(world.size));
    split.wishes[static_cast<std::size_t>(comm->end->rank)] = {color, key};
    ++split.arrived;
  }
  comm->child = child;
  std::lock_guard lock(Fake().mutex);
  ++Fake().counts.splits;
  return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  {
    std::lock_guard lock(Fake().mutex);
    ++Fake().counts.destroys;
  }
  Free(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  static std::atomic<int> running{0};
  {
    std::lock_guard lock(Fake().mutex);
    ++Fake().counts.aborts;
    Fake().counts.concurrent_aborts = std::max(Fake().counts.concurrent_aborts, ++running);
  }
  while (FakeGpuState().abort_hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  {
    World& world = *comm->end->world;
    std::unique_lock lock(world.mutex);
    comm->end->aborted = true;
    world.changed.notify_all();
    world.changed.wait(lock, [&] { return comm->end->inside == 0; });
  }
  --running;
  Free(comm);
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** block, size_t bytes) {
  *block = ait::testing::FakeAllocate(bytes, ait::testing::FakeCurrentDevice());
  return *block != nullptr ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* block) {
  return ait::testing::FakeFree(block) ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommRegister(const ncclComm_t, void*, size_t, void** handle) {
  std::lock_guard lock(Fake().mutex);
  auto& counts = Fake().counts;
  counts.max_registrations = std::max(counts.max_registrations, ++counts.registrations);
  *handle = &Fake();
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t, void*) {
  std::lock_guard lock(Fake().mutex);
  --Fake().counts.registrations;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  std::map<ncclComm_t, std::pair<std::vector<Call>, cudaStream_t>> launches;
  for (Grouped& grouped : Group()) {
    launches[grouped.comm].first.push_back(grouped.call);
    launches[grouped.comm].second = grouped.stream;
  }
  Group().clear();
  ncclResult_t result = ncclSuccess;
  for (auto& [comm, launch] : launches) {
    const ncclResult_t one = Launched(comm, std::move(launch.first), launch.second);
    if (one != ncclSuccess) result = one;
  }
  return result;
}

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  {
    std::lock_guard lock(Fake().mutex);
    ++Fake().counts.all_reduces;
  }
  return Enqueue(comm, {Kind::kAllReduce, input, output, count, type, op}, stream);
}

ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return Enqueue(comm, {Kind::kBroadcast, input, output, count, type, ncclSum, root}, stream);
}

ncclResult_t ncclReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return Enqueue(comm, {Kind::kReduce, input, output, count, type, op, root}, stream);
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  {
    std::lock_guard lock(Fake().mutex);
    ++Fake().counts.all_gathers;
  }
  return Enqueue(comm, {Kind::kAllGather, input, output, count, type}, stream);
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Enqueue(comm, {Kind::kReduceScatter, input, output, count, type, op}, stream);
}

ncclResult_t ncclSend(const void* input, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  {
    std::lock_guard lock(Fake().mutex);
    ++Fake().counts.sends;
  }
  return Enqueue(comm, {Kind::kSend, input, nullptr, count, type, ncclSum, peer}, stream);
}

ncclResult_t ncclRecv(void* output, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Enqueue(comm, {Kind::kReceive, nullptr, output, count, type, ncclSum, peer}, stream);
}

}  // extern "C"
// NOLINTEND
