// SPDX-License-Identifier: Apache-2.0
// One rank of the shared-memory transport in bench_comm, which starts it: comm_shm_rank BUDGET_MS
// REPETITIONS KiB…

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "ait/base/float16.h"
#include "ait/comm/communicator.h"
#include "ait/comm/shared_memory.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/world.h"
#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "comm/shm_ranks.h"
#include "support/rank_timing.h"

namespace ait::benchmarks {
namespace {

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T Check(StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

class RankBenchmark {
 public:
  RankBenchmark(World& world, RankTimerOptions options)
      : rank_(world.rank().value()), size_(world.size().value()) {
    // A group of its own, whose transport the benchmark can reach.
    auto transport = Check(JoinSharedMemory(*world.store(), "bench", world.rank(), world.size(),
                                            Deadline::After(std::chrono::seconds(60))));
    transport_ = transport.get();
    all_ = std::make_unique<Communicator>(std::move(transport));
    timer_ = std::make_unique<RankTimer>(
        std::move(options), rank_ == 0, [this] { Check(all_->Barrier().Wait()); },
        [this](double x) {
          Check(all_->AllReduce(Buffer{&x, 1, DType::kFloat64}, ReduceOp::kMax).Wait());
          return x;
        });
  }

  void Run() {
    for (const std::int64_t bytes : timer_->options().sizes) {
      for (const bool arena : {true, false}) {
        HostBuffer memory = Check(
            HostBuffer::Create(arena ? all_->memory() : heap_, static_cast<std::size_t>(bytes)));
        Collectives(memory, arena ? "arena" : "foreign");
        if (bytes == 25 << 20 && size_ == 2) {
          Half<BFloat16>("all_reduce_bf16", memory, arena ? "arena" : "foreign");
          Half<Float16>("all_reduce_fp16", memory, arena ? "arena" : "foreign");
        }
      }
    }
    if (size_ == 2) Signature();
    Check(all_->Barrier().Wait());
  }

 private:
  void Collectives(HostBuffer& memory, const char* where) {
    const std::span<float> x = memory.As<float>();
    const auto count = static_cast<std::int64_t>(x.size()), part = count / size_;
    const Buffer whole = View(x), mine = whole.Slice(rank_ * part, part);
    const auto all_reduce = [&] { Check(all_->AllReduce(whole, ReduceOp::kSum).Wait()); };
    const auto reduce_scatter = [&] {
      Check(all_->ReduceScatter(whole, mine, ReduceOp::kSum).Wait());
    };
    const auto all_gather = [&] { Check(all_->AllGather(mine, whole).Wait()); };
    const auto give = [&] {
      for (std::int64_t i = 0; i < count; ++i) x[i] = Given(rank_, i);
    };
    const auto expect = [&](const char* what, std::int64_t begin, std::int64_t length,
                            const auto& expected) {
      for (std::int64_t i = begin; i < begin + length; ++i) {
        if (x[i] != expected(i)) FailWrong(what, rank_, i, x[i], expected(i));
      }
    };
    const auto sum = [&](std::int64_t i) { return GivenSum(size_, i); };
    give();
    all_reduce();
    expect("all-reduce", 0, count, sum);
    give();
    reduce_scatter();
    expect("reduce-scatter", rank_ * part, part, sum);
    give();
    all_gather();
    expect("all-gather", 0, count,
           [&](std::int64_t i) { return Given(static_cast<int>(i / part), i); });
    memory.Zero();  // sums of zeros stay finite
    timer_->Time("all_reduce", memory.size_bytes(), where, all_reduce);
    timer_->Time("reduce_scatter", memory.size_bytes(), where, reduce_scatter);
    timer_->Time("all_gather", memory.size_bytes(), where, all_gather);
  }

  template <typename T>
  void Half(const char* name, HostBuffer& memory, const char* where) {
    const std::span<T> x = memory.As<T>();
    const auto all_reduce = [&] { Check(all_->AllReduce(View(x), ReduceOp::kSum).Wait()); };
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = T(Given(rank_, static_cast<std::int64_t>(i)));
    }
    all_reduce();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float sum = GivenSum(size_, static_cast<std::int64_t>(i));
      if (static_cast<float>(x[i]) != sum) {
        FailWrong(name, rank_, static_cast<std::int64_t>(i), static_cast<float>(x[i]), sum);
      }
    }
    memory.Zero();
    timer_->Time(name, memory.size_bytes(), where, all_reduce);
  }

  /// The smallest operation that does something, with and without the comparison of what ranks mean.
  void Signature() {
    HostBuffer memory = Check(HostBuffer::Create(all_->memory(), 64));
    memory.Zero();
    const Buffer x = View(memory.As<float>());
    const auto call = [&] { Check(all_->AllReduce(x, ReduceOp::kSum).Wait()); };
    const auto check = [this](bool on) {
      return [this, on] {
        Check(all_->Barrier().Wait());
        internal::SetCheckSignatures(*transport_, on);
      };
    };
    timer_->Alternate({{"signature_on", call, check(true)}, {"signature_off", call, check(false)}},
                      64, "arena");
    check(true)();
  }

  const int rank_, size_;
  const MemoryHandle heap_ = HeapResource::Create({.huge_pages = HugePages::kNever});
  Transport* transport_ = nullptr;
  std::unique_ptr<Communicator> all_;
  std::unique_ptr<RankTimer> timer_;
};

int Main(int argc, char** argv) {
  auto world = Check(World::FromEnvironment({.transport = SharedMemory()}));
  RankBenchmark(*world, RankTimerOptions(argc, argv)).Run();
  return 0;
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) { return ait::benchmarks::Main(argc, argv); }
