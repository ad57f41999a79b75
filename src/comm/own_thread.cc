// SPDX-License-Identifier: Apache-2.0
#include "comm/own_thread.h"

#include <memory>
#include <system_error>
#include <utility>

namespace ait::inline v0::internal {
namespace {

thread_local bool on_own_thread = false;

}  // namespace

StatusOr<std::thread> StartOwnThread(std::string_view what, std::function<void()> body) {
  try {
    return std::thread([body = std::move(body)] {
      on_own_thread = true;
      body();
    });
  } catch (const std::system_error& error) {
    return ResourceExhaustedError("the thread of ", what, " could not be started: ", error.what());
  }
}

bool OnOwnThread() { return on_own_thread; }

void RunOffOwnThreads(std::function<void()> work) {
  if (!on_own_thread) return work();
  auto held = std::make_unique<std::function<void()>>(std::move(work));
  try {
    std::thread([raw = held.get()] {
      const std::unique_ptr<std::function<void()>> owned(raw);
      (*owned)();
    }).detach();
  } catch (const std::system_error&) {
  }
  held.release();
}

}  // namespace ait::inline v0::internal
