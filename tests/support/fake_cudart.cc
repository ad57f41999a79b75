// SPDX-License-Identifier: Apache-2.0
// The CUDA run time of the fake GPU; see fake_gpu.h.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "support/fake_gpu_internal.h"

namespace ait::testing {
namespace {

/// A mark in a stream: passed or not.
struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool passed = false;
  std::chrono::steady_clock::time_point when;

  void Pass() {
    std::lock_guard lock(mutex);
    passed = true;
    when = std::chrono::steady_clock::now();
    changed.notify_all();
  }
  bool IsPassed() {
    std::lock_guard lock(mutex);
    return passed;
  }
  void Wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return passed; });
  }
};

/// A queue with a thread of its own. What is in it when the stream is destroyed still runs.
class FakeStream : public std::enable_shared_from_this<FakeStream> {
 public:
  explicit FakeStream(int device) : device_(device) {}
  int device() const { return device_; }
  void Start() {
    std::thread([self = shared_from_this()] { self->Run(); }).detach();
  }
  void Enqueue(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }
  std::shared_ptr<Mark> Here() {
    auto mark = std::make_shared<Mark>();
    Enqueue([mark] { mark->Pass(); });
    return mark;
  }
  bool Done() {
    std::lock_guard lock(mutex_);
    return queue_.empty() && !busy_;
  }
  void End() {
    std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      work();
      lock.lock();
      busy_ = false;
    }
  }

  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false;
  bool ending_ = false;
};

struct FakeEvent {
  std::mutex mutex;
  std::shared_ptr<Mark> mark;
  bool timing = false;
};

struct Block {
  std::size_t bytes;
  std::byte* reach;  // where the fake itself reads and writes it
  bool pinned;
  int device;
  bool registered = false;  // memory of somebody else
};

struct Memory {
  std::mutex mutex;
  std::map<std::uintptr_t, Block> blocks;
  std::int64_t used = 0;
};

Memory& AllMemory() {
  static Memory* const memory = new Memory;
  return *memory;
}

/// The block that holds `address`, with the lock.
std::map<std::uintptr_t, Block>::iterator BlockOf(Memory& memory, const void* address) {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  auto next = memory.blocks.upper_bound(value);
  if (next == memory.blocks.begin()) return memory.blocks.end();
  --next;
  return value < next->first + next->second.bytes ? next : memory.blocks.end();
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Return(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

FakeStream& StreamOf(void* stream) {
  if (stream != nullptr) return **static_cast<std::shared_ptr<FakeStream>*>(stream);
  static FakeStream* const fallback = [] {
    static auto* const kept = new std::shared_ptr<FakeStream>(std::make_shared<FakeStream>(0));
    (*kept)->Start();
    return kept->get();
  }();
  return *fallback;
}

std::shared_ptr<Mark> MarkOf(cudaEvent_t event) {
  auto* fake = reinterpret_cast<FakeEvent*>(event);
  std::lock_guard lock(fake->mutex);
  return fake->mark;
}

std::size_t PageUp(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

FakeGpu& Fake() {
  static FakeGpu* const fake = new FakeGpu;
  return *fake;
}

FakeGpuFaults FakeGpuState() {
  std::lock_guard lock(Fake().mutex);
  return Fake().faults;
}

void SetFakeGpuState(const FakeGpuFaults& faults) {
  std::lock_guard lock(Fake().mutex);
  Fake().faults = faults;
}

FakeGpuCounts FakeGpuCounted() {
  std::lock_guard lock(Fake().mutex);
  return Fake().counts;
}

void ResetFakeGpu() {
  std::lock_guard lock(Fake().mutex);
  FakeGpuCounts& counts = Fake().counts;
  Fake().faults = {};
  counts = {.streams = counts.streams,
            .events = counts.events,
            .blocks = counts.blocks,
            .registered = counts.registered,
            .communicators = counts.communicators,
            .registrations = counts.registrations};
}

std::string FakeGpuLibrary() {
  Dl_info info = {};
  return dladdr(reinterpret_cast<const void*>(&cudaGetDeviceCount), &info) != 0 ? info.dli_fname
                                                                                : "";
}

void FakeEnqueue(void* stream, std::function<void()> work) {
  StreamOf(stream).Enqueue(std::move(work));
}

int FakeCurrentDevice() { return current_device; }

void* FakeReach(const void* address) {
  Memory& memory = AllMemory();
  std::lock_guard lock(memory.mutex);
  const auto block = BlockOf(memory, address);
  if (block == memory.blocks.end()) return const_cast<void*>(address);
  return block->second.reach + (reinterpret_cast<std::uintptr_t>(address) - block->first);
}

void* FakeAllocate(std::size_t bytes, int device) {
  const std::int64_t free_memory = FakeGpuState().free_memory;
  Memory& memory = AllMemory();
  std::lock_guard lock(memory.mutex);
  if (memory.used + static_cast<std::int64_t>(bytes) > free_memory) return nullptr;
  const std::size_t size = PageUp(bytes);
  const int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) return nullptr;
  void* seen = mmap(nullptr, size, PROT_NONE, MAP_SHARED, fd, 0);
  void* reach = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (seen == MAP_FAILED || reach == MAP_FAILED) return nullptr;
  memory.used += static_cast<std::int64_t>(bytes);
  memory.blocks[reinterpret_cast<std::uintptr_t>(seen)] = {
      .bytes = bytes, .reach = static_cast<std::byte*>(reach), .pinned = false, .device = device};
  std::lock_guard counts(Fake().mutex);
  ++Fake().counts.blocks;
  return seen;
}

bool FakeFree(void* address) {
  Memory& memory = AllMemory();
  std::lock_guard lock(memory.mutex);
  const auto found = memory.blocks.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == memory.blocks.end() || found->second.registered) return false;
  const Block& block = found->second;
  if (block.pinned) {
    operator delete(address, std::align_val_t(4096));
  } else {
    memory.used -= static_cast<std::int64_t>(block.bytes);
    munmap(block.reach, PageUp(block.bytes));
    munmap(address, PageUp(block.bytes));
  }
  memory.blocks.erase(found);
  std::lock_guard counts(Fake().mutex);
  --Fake().counts.blocks;
  return true;
}

}  // namespace ait::testing

// NOLINTBEGIN: the names are CUDA's.
using ait::testing::AllMemory;
using ait::testing::BlockOf;
using ait::testing::current_device;
using ait::testing::Fake;
using ait::testing::FakeEvent;
using ait::testing::FakeGpuState;
using ait::testing::FakeReach;
using ait::testing::FakeStream;
using ait::testing::last_error;
using ait::testing::Mark;
using ait::testing::MarkOf;
using ait::testing::Return;
using ait::testing::StreamOf;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const ait::testing::FakeGpuFaults faults = FakeGpuState();
  *count = 0;
  if (!faults.driver) return Return(cudaErrorInsufficientDriver);
  if (faults.devices == 0) return Return(cudaErrorNoDevice);
  *count = faults.devices;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  const int forced = FakeGpuState().cudart_version;
  *version = forced != 0 ? forced : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = FakeGpuState().driver ? CUDART_VERSION : 0;
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    default:
      return "cudaErrorOfTheFake";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "an error of the fake GPU";
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= FakeGpuState().devices) return Return(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "Fake GPU %d", device);
  properties->major = 9;
  properties->multiProcessorCount = 4;
  properties->totalGlobalMem = std::size_t{1} << 30;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int from, int to) {
  *can = from != to ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = {};
  auto& memory = AllMemory();
  std::lock_guard lock(memory.mutex);
  const auto block = BlockOf(memory, address);
  attributes->type = cudaMemoryTypeUnregistered;
  if (block == memory.blocks.end()) return cudaSuccess;
  attributes->type = block->second.pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = block->second.device;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  auto* made = new std::shared_ptr<FakeStream>(std::make_shared<FakeStream>(current_device));
  (*made)->Start();
  *stream = reinterpret_cast<cudaStream_t>(made);
  std::lock_guard lock(Fake().mutex);
  ++Fake().counts.streams;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  auto* made = reinterpret_cast<std::shared_ptr<FakeStream>*>(stream);
  (*made)->End();
  delete made;
  std::lock_guard lock(Fake().mutex);
  --Fake().counts.streams;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return StreamOf(stream).Done() ? cudaSuccess : Return(cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  StreamOf(stream).Here()->Wait();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  if (const std::shared_ptr<Mark> mark = MarkOf(event)) {
    StreamOf(stream).Enqueue([mark] { mark->Wait(); });
  }
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  auto* made = new FakeEvent;
  made->timing = (flags & cudaEventDisableTiming) == 0;
  *event = reinterpret_cast<cudaEvent_t>(made);
  std::lock_guard lock(Fake().mutex);
  ++Fake().counts.events;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<FakeEvent*>(event);
  std::lock_guard lock(Fake().mutex);
  --Fake().counts.events;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::shared_ptr<Mark> mark = StreamOf(stream).Here();
  auto* fake = reinterpret_cast<FakeEvent*>(event);
  std::lock_guard lock(fake->mutex);
  fake->mark = mark;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::shared_ptr<Mark> mark = MarkOf(event);
  return mark == nullptr || mark->IsPassed() ? cudaSuccess : Return(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const std::shared_ptr<Mark> mark = MarkOf(event)) mark->Wait();
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const auto [from, to] = std::pair(MarkOf(start), MarkOf(end));
  const bool timing =
      reinterpret_cast<FakeEvent*>(start)->timing && reinterpret_cast<FakeEvent*>(end)->timing;
  if (from == nullptr || to == nullptr || !timing) return Return(cudaErrorInvalidResourceHandle);
  if (!from->IsPassed() || !to->IsPassed()) return Return(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(to->when - from->when).count();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** block, std::size_t bytes) {
  *block = ait::testing::FakeAllocate(bytes, current_device);
  return *block != nullptr ? cudaSuccess : Return(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* block) {
  return block == nullptr || ait::testing::FakeFree(block) ? cudaSuccess
                                                           : Return(cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void** block, std::size_t bytes) {
  *block = operator new(bytes, std::align_val_t(4096));
  auto& memory = AllMemory();
  std::lock_guard lock(memory.mutex);
  memory.blocks[reinterpret_cast<std::uintptr_t>(*block)] = {
      .bytes = bytes, .reach = static_cast<std::byte*>(*block), .pinned = true, .device = 0};
  std::lock_guard counts(Fake().mutex);
  ++Fake().counts.blocks;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* block) { return cudaFree(block); }

cudaError_t cudaHostRegister(void* address, std::size_t bytes, unsigned int) {
  const std::int64_t pinnable = FakeGpuState().pinnable;
  auto& memory = AllMemory();
  std::lock_guard lock(memory.mutex);
  std::lock_guard counts(Fake().mutex);
  const auto size = static_cast<std::int64_t>(bytes);
  if (Fake().counts.registered + size > pinnable) return Return(cudaErrorMemoryAllocation);
  auto* const begin = static_cast<std::byte*>(address);
  const auto next = memory.blocks.lower_bound(reinterpret_cast<std::uintptr_t>(begin + bytes));
  if (BlockOf(memory, begin) != memory.blocks.end() ||
      (next != memory.blocks.begin() &&
       std::prev(next)->first >= reinterpret_cast<std::uintptr_t>(begin))) {
    return Return(cudaErrorHostMemoryAlreadyRegistered);
  }
  memory.blocks[reinterpret_cast<std::uintptr_t>(begin)] = {
      .bytes = bytes, .reach = begin, .pinned = true, .device = 0, .registered = true};
  Fake().counts.registered += size;
  ++Fake().counts.registers;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  auto& memory = AllMemory();
  std::lock_guard lock(memory.mutex);
  const auto found = memory.blocks.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == memory.blocks.end() || !found->second.registered) {
    return Return(cudaErrorHostMemoryNotRegistered);
  }
  std::lock_guard counts(Fake().mutex);
  Fake().counts.registered -= static_cast<std::int64_t>(found->second.bytes);
  memory.blocks.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const ait::testing::FakeGpuFaults faults = FakeGpuState();
  {
    std::lock_guard lock(Fake().mutex);
    if (Fake().counts.copies >= faults.copies_before && faults.copy_error != 0) {
      return Return(static_cast<cudaError_t>(faults.copy_error));
    }
    ++Fake().counts.copies;
  }
  const auto copy = [delay = faults.copy_delay_us, bytes](void* target, const void* source) {
    if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
    std::memcpy(target, source, bytes);
    std::lock_guard lock(Fake().mutex);
    ++Fake().counts.copies_done;
  };
  cudaPointerAttributes source;
  cudaPointerAttributes target;
  cudaPointerGetAttributes(&source, from);
  cudaPointerGetAttributes(&target, to);
  FakeStream& queue = StreamOf(stream);
  if (source.type == cudaMemoryTypeUnregistered) {  // pageable: staged at the call
    auto staged = std::make_shared<std::vector<std::byte>>(bytes);
    std::memcpy(staged->data(), from, bytes);
    queue.Enqueue([copy, to = FakeReach(to), staged] { copy(to, staged->data()); });
  } else {
    queue.Enqueue([copy, to = FakeReach(to), from = FakeReach(from)] { copy(to, from); });
  }
  if (target.type == cudaMemoryTypeUnregistered) queue.Here()->Wait();
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  StreamOf(stream).Enqueue([to = FakeReach(to), value, bytes] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

}  // extern "C"
// NOLINTEND
