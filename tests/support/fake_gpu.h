// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_SUPPORT_FAKE_GPU_H_
#define AIT_TESTS_SUPPORT_FAKE_GPU_H_

// A GPU and an NCCL made of threads, to test the logic of what drives the real ones.
//
// libait_fake_gpu.so exports the functions of libcudart and libnccl that ait uses, with the
// semantics their manuals promise: streams run in order on a thread of their own, device memory
// traps when the host touches it, calls of a non-blocking communicator return ncclInProgress,
// operations whose peers do not come hang until they are aborted. A test gives its path to
// `DeviceRuntimeOptions::library` and `NcclOptions::library`, and injects what goes wrong through
// the functions below. What it proves is our control logic, and nothing about speed or hardware.

#include <cstdint>
#include <string>

#include "ait/base/status.h"

namespace ait::testing {

/// File of the library that holds both fakes.
std::string FakeGpuLibrary();

/// State that tests change. One set for the process; `ResetFakeGpu` sets all of it back.
struct FakeGpuFaults {
  int devices = 2;
  bool driver = true;
  int cudart_version = 0;     // 0: that of the headers
  int nccl_version = 0;       // 0: that of the headers
  int init_polls = 0;         // times that a communicator says "in progress" after all ranks came
  int call_polls = 0;         // times that it says so after a call
  bool abort_hangs = false;   // ncclCommAbort does not return until this is false again
  int init_result = 0;        // what ncclCommInitRankConfig returns, if not 0 (ncclSuccess)
  int async_error = 0;        // ncclResult_t that every communicator reports, if not 0
  int async_error_rank = -1;  // only those of this rank
  std::int64_t free_memory = std::int64_t{1} << 40;  // cudaMalloc fails beyond
  std::int64_t pinnable = std::int64_t{1} << 40;     // cudaHostRegister fails beyond
  int copy_delay_us = 0;  // what every copy waits on its stream before it begins
  int copy_error = 0;     // cudaError_t that cudaMemcpyAsync returns, if not 0 …
  int copies_before = 0;  // … once this many copies have been asked for
};

FakeGpuFaults FakeGpuState();
void SetFakeGpuState(const FakeGpuFaults& faults);

/// What the fakes counted since the last reset.
struct FakeGpuCounts {
  int streams = 0;              // that live
  int events = 0;               // that live
  int blocks = 0;               // of device and pinned memory, that live
  std::int64_t registered = 0;  // bytes that cudaHostRegister has pinned
  int registers = 0;            // calls of it that succeeded
  int communicators = 0;        // that live: neither destroyed nor aborted
  int aborts = 0;
  int destroys = 0;
  int splits = 0;
  int inits = 0;
  int registrations = 0;  // that live
  int max_registrations = 0;
  int concurrent_aborts = 0;  // most ncclCommAbort calls at one moment
  int all_reduces = 0;        // calls of the functions of that name
  int all_gathers = 0;
  int sends = 0;
  int copies = 0;       // of cudaMemcpyAsync that were asked for
  int copies_done = 0;  // and that have ended
};
FakeGpuCounts FakeGpuCounted();

/// Back to the defaults, counts of calls to zero.
void ResetFakeGpu();

}  // namespace ait::testing

#endif  // AIT_TESTS_SUPPORT_FAKE_GPU_H_
