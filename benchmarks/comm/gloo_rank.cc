// SPDX-License-Identifier: Apache-2.0
// One rank over Gloo in bench_comm, which starts it: comm_gloo_rank ait|c10d BUDGET_MS REPETITIONS KiB…
// "ait" is our transport, "c10d" libtorch's process group, which users of libtorch have.
#include <ATen/core/ivalue.h>
// Keep the order.
#include <ATen/ATen.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "ait/comm/tcp_store.h"
#include "ait/tensor/gloo.h"
#include "support/rank_timing.h"
#include "tensor/gloo_store.h"

namespace ait::benchmarks {
namespace {

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

/// The three collectives of one of the two.
struct Engine {
  std::function<void(at::Tensor& whole)> all_reduce;
  std::function<void(at::Tensor& mine, at::Tensor& whole)> reduce_scatter;
  std::function<void(at::Tensor& whole, at::Tensor& mine)> all_gather;
};

Buffer BufferOf(at::Tensor& x) { return {x.data_ptr(), x.numel(), DType::kFloat32}; }

Engine OurEngine(Communicator& all) {
  return {
      .all_reduce =
          [&](at::Tensor& x) { Check(all.AllReduce(BufferOf(x), ReduceOp::kSum).Wait()); },
      .reduce_scatter =
          [&](at::Tensor& mine, at::Tensor& whole) {
            Check(all.ReduceScatter(BufferOf(whole), BufferOf(mine), ReduceOp::kSum).Wait());
          },
      .all_gather =
          [&](at::Tensor& whole, at::Tensor& mine) {
            Check(all.AllGather(BufferOf(mine), BufferOf(whole)).Wait());
          },
  };
}

Engine C10dEngine(World& world) {
  // Lives as long as the world, which owns it.
  std::shared_ptr<TcpStore> store(world.store(), [](TcpStore*) {});
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(
      internal::MakeC10dStore(std::move(store), "c10d/", {}, Deadline::Infinite()),
      world.rank().value(), world.size().value(), options);
  return {
      .all_reduce =
          [group](at::Tensor& x) {
            std::vector<at::Tensor> tensors{x};
            group->allreduce(tensors)->wait();
          },
      .reduce_scatter =
          [group](at::Tensor& mine, at::Tensor& whole) {
            group->_reduce_scatter_base(mine, whole)->wait();
          },
      .all_gather = [group](at::Tensor& whole,
                            at::Tensor& mine) { group->_allgather_base(whole, mine)->wait(); },
  };
}

at::Tensor GivenTensor(int rank, std::int64_t count) {
  at::Tensor x = at::empty({count});
  for (std::int64_t i = 0; i < count; ++i) x.data_ptr<float>()[i] = Given(rank, i);
  return x;
}

int Main(int argc, char** argv) {
  if (argc < 2) return 2;
  const bool ours = std::string_view(argv[1]) == "ait";
  auto made = World::FromEnvironment({.transport = Gloo()});
  Check(made.status());
  World& world = **made;
  Communicator& all = *world.communicator();
  const int rank = world.rank().value(), size = world.size().value();
  const Engine engine = ours ? OurEngine(all) : C10dEngine(world);
  RankTimer timer(
      RankTimerOptions(argc - 1, argv + 1), rank == 0, [&] { Check(all.Barrier().Wait()); },
      [&](double x) {
        Check(all.AllReduce(Buffer{&x, 1, DType::kFloat64}, ReduceOp::kMax).Wait());
        return x;
      });
  for (const std::int64_t bytes : timer.options().sizes) {
    at::Tensor whole = GivenTensor(rank, bytes / 4), mine = at::zeros({bytes / 4 / size});
    engine.reduce_scatter(mine, whole);
    engine.all_reduce(whole);
    for (std::int64_t i = 0; i < whole.numel(); ++i) {
      const float seen = whole.data_ptr<float>()[i];
      if (seen != GivenSum(size, i)) FailWrong("all-reduce", rank, i, seen, GivenSum(size, i));
    }
    for (std::int64_t i = 0; i < mine.numel(); ++i) {
      const float seen = mine.data_ptr<float>()[i], sum = GivenSum(size, rank * mine.numel() + i);
      if (seen != sum) FailWrong("reduce-scatter", rank, i, seen, sum);
    }
    whole.zero_();
    mine.zero_();
    timer.Time("all_reduce", bytes, "foreign", [&] { engine.all_reduce(whole); });
    timer.Time("reduce_scatter", bytes, "foreign", [&] { engine.reduce_scatter(mine, whole); });
    timer.Time("all_gather", bytes, "foreign", [&] { engine.all_gather(whole, mine); });
  }
  Check(all.Barrier().Wait());
  return 0;
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) { return ait::benchmarks::Main(argc, argv); }
