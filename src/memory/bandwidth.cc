// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/bandwidth.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/topology/binding.h"
#include "memory/bandwidth_kernels.h"

namespace ait::inline v0 {
namespace {

using internal::BandwidthKernels;
using Clock = std::chrono::steady_clock;

constexpr float kB = 1, kC = 2, kFactor = 3;
constexpr std::int64_t kStepBytes = BandwidthKernels::kStep * std::int64_t{sizeof(float)};

/// Bytes moved for each byte of an array.
int Streams(BandwidthKernel kernel) {
  switch (kernel) {
    case BandwidthKernel::kRead:
      return 1;
    case BandwidthKernel::kCopy:
      return 2;
    case BandwidthKernel::kTriad:
      return 3;
  }
  return 1;
}

Status Check(const BandwidthOptions& options) {
  const auto threads = static_cast<std::int64_t>(options.threads.size());
  if (threads == 0) return InvalidArgumentError("no thread to measure with; name at least one");
  if (options.array_bytes < Bytes(threads * 4096)) {
    return InvalidArgumentError("arrays of ", options.array_bytes.value(),
                                " bytes are too small for ", threads,
                                " threads; at least 4096 bytes for each are needed");
  }
  if (options.repetitions < 1) {
    return InvalidArgumentError("repetitions must be at least 1, not ", options.repetitions);
  }
  return OkStatus();
}

/// When a thread began and ended its part.
struct Span {
  Clock::time_point begin, end;
};

}  // namespace

namespace internal {

const BandwidthKernels& BandwidthKernelsFor([[maybe_unused]] SimdLevel cap) {
#if defined(__x86_64__)
  static const SimdLevel best = BestSimdLevel();
  switch (std::min(cap, best)) {
    case SimdLevel::kAvx512:
      return kAvx512BandwidthKernels;
    case SimdLevel::kAvx2:
      return kAvx2BandwidthKernels;
    case SimdLevel::kBaseline:
      break;
  }
#endif
  return kBaselineBandwidthKernels;
}

}  // namespace internal

std::string_view Name(BandwidthKernel kernel) {
  switch (kernel) {
    case BandwidthKernel::kRead:
      return "read";
    case BandwidthKernel::kCopy:
      return "copy";
    case BandwidthKernel::kTriad:
      return "triad";
  }
  return "unknown";
}

struct BandwidthProbe::Impl {
  explicit Impl(BandwidthOptions chosen)
      : options(std::move(chosen)), kernels(internal::BandwidthKernelsFor(options.max_level)) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stops = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  Status Start();
  void Live(std::size_t index);
  void Touch(std::size_t index);
  void Work(std::size_t index, BandwidthKernel kernel);
  double RunOnce(BandwidthKernel kernel);  // seconds

  /// The part of a thread, as floats.
  std::pair<std::int64_t, std::int64_t> PartOf(std::size_t index) const {
    const std::int64_t steps = count / BandwidthKernels::kStep;
    const auto n = static_cast<std::int64_t>(options.threads.size());
    const auto i = static_cast<std::int64_t>(index);
    return {steps * i / n * BandwidthKernels::kStep, steps * (i + 1) / n * BandwidthKernels::kStep};
  }
  float* data(std::size_t array) { return arrays[array].As<float>().data(); }

  const BandwidthOptions options;
  const BandwidthKernels& kernels;
  std::int64_t count = 0;  // floats of each array
  std::array<HostBuffer, 3> arrays;
  std::vector<std::thread> threads;
  std::vector<Span> spans;  // by thread
  std::vector<float> sums;  // by thread, so that reading is not left out

  std::mutex mutex;
  std::condition_variable changed;
  std::optional<BandwidthKernel> kernel;  // what this turn does
  int turn = 0;                           // counts up for each piece of work; 1: touching
  std::size_t finished = 0;               // threads that are done with this turn
  bool stops = false;
  Status status;  // the first that failed to bind
};

Status BandwidthProbe::Impl::Start() {
  count = options.array_bytes.value() / kStepBytes * BandwidthKernels::kStep;
  const MemoryHandle memory =
      options.memory ? options.memory : MemoryHandle(HeapResource::Create());
  for (HostBuffer& array : arrays) {
    // A huge page's alignment, so that the kernel can give such.
    AIT_ASSIGN_OR_RETURN(array,
                         HostBuffer::Create(memory, static_cast<std::size_t>(count) * sizeof(float),
                                            MemoryResource::kMaxAlignment));
  }
  spans.resize(options.threads.size());
  sums.resize(options.threads.size());
  turn = 1;
  for (std::size_t i = 0; i < options.threads.size(); ++i) {
    try {
      threads.emplace_back([this, i] { Live(i); });
    } catch (const std::system_error& error) {
      return ResourceExhaustedError("cannot start thread ", i, " to measure with: ", error.what());
    }
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return finished == threads.size(); });
  return status;
}

void BandwidthProbe::Impl::Live(std::size_t index) {
  Status bound;
  if (const CpuSet& cpus = options.threads[index]; !cpus.empty()) bound = BindThisThread(cpus);
  if (bound.ok()) Touch(index);
  std::unique_lock lock(mutex);
  if (status.ok()) status = bound;
  for (int done = 1;; ++done) {
    ++finished;
    changed.notify_all();
    changed.wait(lock, [&] { return turn != done || stops; });
    if (stops) return;
    const BandwidthKernel now = *kernel;
    lock.unlock();
    spans[index].begin = Clock::now();
    Work(index, now);
    spans[index].end = Clock::now();
    lock.lock();
  }
}

void BandwidthProbe::Impl::Touch(std::size_t index) {
  const auto [begin, end] = PartOf(index);
  std::fill(data(0) + begin, data(0) + end, 0.0f);
  std::fill(data(1) + begin, data(1) + end, kB);
  std::fill(data(2) + begin, data(2) + end, kC);
}

void BandwidthProbe::Impl::Work(std::size_t index, BandwidthKernel now) {
  const auto [begin, end] = PartOf(index);
  switch (now) {
    case BandwidthKernel::kRead:
      sums[index] = kernels.read(data(1) + begin, end - begin);
      return;
    case BandwidthKernel::kCopy:
      kernels.copy(data(0) + begin, data(1) + begin, end - begin);
      return;
    case BandwidthKernel::kTriad:
      kernels.triad(data(0) + begin, data(1) + begin, data(2) + begin, kFactor, end - begin);
      return;
  }
}

double BandwidthProbe::Impl::RunOnce(BandwidthKernel now) {
  std::unique_lock lock(mutex);
  kernel = now;
  finished = 0;
  ++turn;
  changed.notify_all();
  changed.wait(lock, [this] { return finished == threads.size(); });
  Span all = spans.front();
  for (const Span& span : spans) {
    all.begin = std::min(all.begin, span.begin);
    all.end = std::max(all.end, span.end);
  }
  return std::chrono::duration<double>(all.end - all.begin).count();
}

StatusOr<std::unique_ptr<BandwidthProbe>> BandwidthProbe::Create(BandwidthOptions options) {
  AIT_RETURN_IF_ERROR(Check(options));
  auto impl = std::make_unique<Impl>(std::move(options));
  AIT_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<BandwidthProbe>(new BandwidthProbe(std::move(impl)));
}

BandwidthProbe::BandwidthProbe(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BandwidthProbe::~BandwidthProbe() = default;

BandwidthResult BandwidthProbe::Measure(BandwidthKernel kernel) {
  const double bytes = static_cast<double>(impl_->count) * sizeof(float) * Streams(kernel);
  std::vector<double> rates;
  for (int i = 0; i < impl_->options.repetitions; ++i) {
    rates.push_back(bytes / std::max(impl_->RunOnce(kernel), 1e-9));
  }
  std::sort(rates.begin(), rates.end());
  return {.best = rates.back(), .median = rates[rates.size() / 2]};
}

std::span<const float> BandwidthProbe::array(int index) const {
  return std::as_const(impl_->arrays[static_cast<std::size_t>(index)]).As<float>();
}

}  // namespace ait::inline v0
