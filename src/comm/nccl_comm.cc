// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_comm.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace ait::inline v0::internal {
namespace {

using std::chrono::microseconds;

/// Makes a device current while it lives.
class DeviceGuard {
 public:
  DeviceGuard(const std::shared_ptr<DeviceRuntime>& devices, Device device)
      : devices_(devices), before_(devices->current()) {
    status_ = before_.ok() ? devices->SetCurrent(device) : before_.status();
  }
  ~DeviceGuard() {
    if (before_.ok()) devices_->SetCurrent(*before_).IgnoreError();
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  const Status& status() const { return status_; }

 private:
  const std::shared_ptr<DeviceRuntime>& devices_;
  const StatusOr<Device> before_;
  Status status_;
};

ncclConfig_t Config() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;  // a child that is aborted must leave its parent alone
  return config;
}

/// Short waits first: most calls are taken within microseconds.
void Pause(int round) {
  if (round < 100) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(round < 1000 ? microseconds(20) : microseconds(500));
  }
}

}  // namespace

struct NcclComm::State {
  std::mutex mutex;
  std::condition_variable changed;
  ncclComm_t comm = nullptr;  // NCCL may fill it later, so it stays where it is
  bool ending = false;
  bool ended = false;
};

NcclComm::NcclComm(Place place, std::shared_ptr<State> state)
    : place_(std::move(place)), state_(std::move(state)) {}

NcclComm::~NcclComm() { Abort(); }

StatusOr<std::unique_ptr<NcclComm>> NcclComm::Begin(const Place& place, const ncclUniqueId& id,
                                                    int rank, int size) {
  const DeviceGuard guard(place.devices, place.device);
  AIT_RETURN_IF_ERROR(guard.status());
  ncclConfig_t config = Config();
  auto state = std::make_shared<State>();
  const ncclResult_t result =
      place.library->ncclCommInitRankConfig(&state->comm, size, id, rank, &config);
  std::unique_ptr<NcclComm> made(new NcclComm(place, std::move(state)));
  AIT_RETURN_IF_ERROR(place.library->Check(result, made->get(), "ncclCommInitRankConfig of rank ",
                                           rank, " of ", size, " on device ", place.device));
  return made;
}

StatusOr<std::unique_ptr<NcclComm>> NcclComm::Split(int color, int key,
                                                    const KeepGoing& keep_going) {
  ncclConfig_t config = Config();
  auto state = std::make_shared<State>();
  const ncclResult_t result =
      place_.library->ncclCommSplit(get(), color, key, &state->comm, &config);
  // The child is there when the parent is ready again, and connected when it is ready itself.
  const Status parent_status = Settle(result, "ncclCommSplit", keep_going);
  if (!parent_status.ok()) {
    // NCCL may still write to the child's place.
    Abort([state] {});
    return parent_status;
  }
  if (state->comm == nullptr) return nullptr;
  std::unique_ptr<NcclComm> child(new NcclComm(place_, std::move(state)));
  AIT_RETURN_IF_ERROR(child->Settle(ncclInProgress, "ncclCommSplit", keep_going));
  return child;
}

ncclComm_t NcclComm::get() const {
  std::lock_guard lock(state_->mutex);
  return state_->ending ? nullptr : state_->comm;
}

StatusOr<bool> NcclComm::Ready(std::string_view what) const {
  const ncclComm_t comm = get();
  if (comm == nullptr) return AbortedError(what, ": the communicator of NCCL was aborted");
  ncclResult_t state = ncclSuccess;
  AIT_RETURN_IF_ERROR(
      place_.library->Check(place_.library->ncclCommGetAsyncError(comm, &state), comm, what));
  AIT_RETURN_IF_ERROR(place_.library->Check(state, comm, what));
  return state != ncclInProgress;
}

Status NcclComm::Settle(ncclResult_t result, std::string_view what,
                        const KeepGoing& keep_going) const {
  AIT_RETURN_IF_ERROR(place_.library->Check(result, get(), what));
  if (result == ncclSuccess) return OkStatus();
  for (int round = 0;; ++round) {
    AIT_ASSIGN_OR_RETURN(const bool ready, Ready(what));
    if (ready) return OkStatus();
    AIT_RETURN_IF_ERROR(keep_going());
    Pause(round);
  }
}

void NcclComm::Abort(std::function<void()> release) { End(Ending::kAbort, std::move(release)); }
void NcclComm::Close(std::function<void()> release) { End(Ending::kClose, std::move(release)); }

void NcclComm::End(Ending ending, std::function<void()> release) {
  {
    std::lock_guard lock(state_->mutex);
    if (std::exchange(state_->ending, true)) return;
    if (state_->comm == nullptr) {
      state_->ended = true;
      return;
    }
  }
  auto body = [place = place_, state = state_, ending, release = std::move(release)]() mutable {
    const ncclComm_t comm = state->comm;
    place.devices->SetCurrent(place.device).IgnoreError();
    ncclResult_t result = ncclInternalError;
    if (ending == Ending::kClose) {
      result = place.library->ncclCommFinalize(comm);
      for (int round = 0; result == ncclInProgress; ++round) {
        Pause(round);
        if (place.library->ncclCommGetAsyncError(comm, &result) != ncclSuccess) break;
      }
    }
    if (result == ncclSuccess) {
      place.library->ncclCommDestroy(comm);
    } else {
      place.library->ncclCommAbort(comm);
    }
    if (release) release();
    release = nullptr;
    std::lock_guard lock(state->mutex);
    state->ended = true;
    state->changed.notify_all();
  };
  try {
    std::thread(std::move(body)).detach();
  } catch (const std::system_error&) {
    // No thread is left: the communicator stays, `AwaitEnd` tells so.
  }
}

bool NcclComm::AwaitEnd(Deadline deadline) const {
  std::unique_lock lock(state_->mutex);
  const auto ended = [this] { return state_->ended; };
  if (deadline.is_infinite()) {
    state_->changed.wait(lock, ended);
    return true;
  }
  return state_->changed.wait_until(lock, deadline.time(), ended);
}

}  // namespace ait::inline v0::internal
