// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_session.h"

#include <mpi.h>

#include <chrono>
#include <string>

#include "comm/own_thread.h"

namespace ait::inline v0::internal {
namespace {

// How long the end of the last communicator waits for the others to come to theirs.
constexpr std::chrono::seconds kFinalizeTime{5};

// MPI is one for the process, so this is too.
std::mutex the_mutex;
std::weak_ptr<MpiSession>& TheSession() {
  static std::weak_ptr<MpiSession> session;
  return session;
}

Status CheckLevel(int level) {
  if (level == MPI_THREAD_MULTIPLE) return OkStatus();
  return FailedPreconditionError(
      "MPI gives the thread level ", level, " and not MPI_THREAD_MULTIPLE (",
      int{MPI_THREAD_MULTIPLE},
      "), which ait needs; ask for it in MPI_Init_thread, or use an MPI that has it");
}

}  // namespace

Status StatusOfMpi(int error, const char* call) {
  if (error == MPI_SUCCESS) return OkStatus();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(error, text, &length);
  return UnavailableError(call, " failed: ", std::string(text, static_cast<std::size_t>(length)));
}

StatusOr<std::shared_ptr<MpiSession>> MpiSession::Join() {
  std::lock_guard lock(the_mutex);
  if (auto session = TheSession().lock()) return session;
  std::shared_ptr<MpiSession> session(new MpiSession());
  AIT_RETURN_IF_ERROR(session->Begin());
  TheSession() = session;
  return session;
}

Status MpiSession::Begin() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    return FailedPreconditionError(
        "MPI was finalised in this process and cannot come back; keep the first world, or "
        "initialise and finalise MPI in main");
  }
  if (initialized != 0) {
    int level = 0;
    MPI_Query_thread(&level);
    AIT_RETURN_IF_ERROR(CheckLevel(level));
  } else {
    state_ = std::make_shared<State>();
    AIT_ASSIGN_OR_RETURN(std::thread thread, StartOwnThread("MPI", [state = state_] {
                           int level = 0;
                           Status begun = StatusOfMpi(
                               MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level),
                               "MPI_Init_thread");
                           if (begun.ok()) {
                             MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
                             begun = CheckLevel(level);
                           }
                           std::unique_lock lock(state->mutex);
                           state->status = begun;
                           state->ready = true;
                           state->changed.notify_all();
                           state->changed.wait(lock, [&] { return state->leaving; });
                           lock.unlock();
                           MPI_Finalize();
                           lock.lock();
                           state->finalized = true;
                           state->changed.notify_all();
                         }));
    thread.detach();
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->ready; });
    AIT_RETURN_IF_ERROR(state_->status);
  }
  int* largest = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&largest), &found);
  largest_tag_ = found != 0 ? *largest : 32767;
  return OkStatus();
}

MpiSession::~MpiSession() {
  if (state_ == nullptr) return;
  std::unique_lock lock(state_->mutex);
  state_->leaving = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kFinalizeTime, [&] { return state_->finalized; });
}

}  // namespace ait::inline v0::internal
