// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_OWN_THREAD_H_
#define AIT_COMM_OWN_THREAD_H_

// Threads that belong to a store or a transport.
//
// Callbacks of users run on such threads and may drop what owns the thread: then it cannot be
// joined from where it runs, and its end is handed to another one.

#include <functional>
#include <string_view>
#include <thread>

#include "ait/base/status.h"

namespace ait::inline v0::internal {

/// Starts a thread. **Errors.** ResourceExhausted, naming `what` ("the store of rank 0"), if the
/// system gives no thread.
StatusOr<std::thread> StartOwnThread(std::string_view what, std::function<void()> body);

/// True on a thread that `StartOwnThread` started.
bool OnOwnThread();

/// Runs `work`, which joins own threads: here, or on an own thread (that is, in a callback) later
/// and elsewhere. If the system gives no thread for that, what `work` holds is never released.
void RunOffOwnThreads(std::function<void()> work);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_OWN_THREAD_H_
