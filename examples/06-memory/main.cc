// SPDX-License-Identifier: Apache-2.0
// Place, verify, observe: a rank binds itself to its CPUs, takes the memory of all its tensors from
// its node, reads back where that lies, and tells who holds it.
//   memory [NODES]    such as 0 or 0-1; else the node of the rank
#include <ATen/ops/mse_loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <cstdio>
#include <memory>
#include <string_view>

#include "ait/base/env.h"
#include "ait/comm/automatic.h"
#include "ait/comm/world.h"
#include "ait/memory/numa.h"
#include "ait/memory/pool.h"
#include "ait/memory/statistics.h"
#include "ait/memory/tracking.h"
#include "ait/optim/adam.h"
#include "ait/parallel/data_parallel.h"
#include "ait/parallel/module.h"
#include "ait/runtime/trainer.h"
#include "ait/tensor/cpu_allocator.h"
#include "ait/tensor/empty.h"
#include "ait/tensor/gloo.h"
#include "ait/topology/rank_layout.h"

namespace {

constexpr std::int64_t kSamples = 65'536, kInputs = 256, kBatch = 4096;
constexpr int kSteps = 20;

/// Where this process belongs: what `ait run` decided, or the whole machine for one rank.
ait::StatusOr<ait::RankLayout> FindLayout() {
  AIT_ASSIGN_OR_RETURN(const auto given, ait::RankLayoutFromEnv(ait::Env::FromProcess()));
  if (given) return *given;
  AIT_ASSIGN_OR_RETURN(const ait::Machine machine, ait::ReadMachine());
  AIT_ASSIGN_OR_RETURN(const ait::Budget budget, ait::ReadBudget());
  AIT_ASSIGN_OR_RETURN(const ait::HostLayout host, ait::LayOutRanks(machine, budget, {}));
  return host.ranks.front();
}

/// On the rank's node, pooled, each block with its owner's label, all of it counted.
struct Memory {
  std::shared_ptr<ait::NumaResource> placed;
  std::shared_ptr<ait::TrackingResource> tracked;
  std::shared_ptr<ait::StatisticsResource> counted;
};

ait::StatusOr<double> Train(ait::World& world, const Memory& memory) {
  const ait::MemoryLabel label("model");
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(kInputs, 1024), torch::nn::ReLU(),
                              torch::nn::Linear(1024, 1));
  ait::DataParallelOptions options;
  if (world.size() == ait::WorldSize(1)) options.memory = memory.counted;  // else shared memory
  AIT_ASSIGN_OR_RETURN(
      auto engine,
      ait::DataParallel::Create(world.communicator(), ait::NamedParameters(*model), options));
  ait::Trainer trainer(*engine, ait::AdamW{{.learning_rate = 1e-3}}, {.total_steps = kSteps});

  at::Tensor samples;
  {
    const ait::MemoryLabel data("data");
    AIT_ASSIGN_OR_RETURN(samples,
                         ait::Empty({kSamples, kInputs}, ait::DType::kFloat32, memory.counted));
  }
  samples.normal_();
  double loss = 0;
  while (!trainer.done()) {
    const at::Tensor batch = samples.narrow(0, trainer.step() * kBatch % kSamples, kBatch);
    auto step = trainer.Step(batch, [&](const at::Tensor& x) {
      const at::Tensor wanted = x.sum(1, /*keepdim=*/true).sin();
      return ait::LossSum{at::mse_loss(model->forward(x), wanted, at::Reduction::Sum), kBatch};
    });
    if (!step.ok()) return step.status();
    loss = step->metrics.loss.value_or(0);
  }
  if (world.rank() == ait::Rank(0)) std::printf("%s\n", memory.tracked->Describe().c_str());
  return loss;
}

ait::Status Run(std::string_view wanted) {
  AIT_ASSIGN_OR_RETURN(ait::NodeSet nodes, ait::NodeSet::Parse(wanted));
  AIT_ASSIGN_OR_RETURN(const ait::RankLayout layout, FindLayout());
  AIT_ASSIGN_OR_RETURN(const ait::AppliedLayout applied, ait::ApplyRankLayout(layout));
  AIT_ASSIGN_OR_RETURN(auto world, ait::World::FromEnvironment(
                                       {.transport = ait::Automatic({.between = ait::Gloo()})}));

  if (nodes.empty() && layout.memory_node) nodes = {*layout.memory_node};
  Memory memory;  // without a known node: that of the thread which allocates
  AIT_ASSIGN_OR_RETURN(memory.placed, ait::NumaResource::Create({.nodes = nodes}));
  AIT_ASSIGN_OR_RETURN(auto pool, ait::PoolResource::Create({.upstream = memory.placed}));
  memory.tracked = ait::TrackingResource::Create(pool);
  memory.counted = ait::StatisticsResource::Create(memory.tracked);
  AIT_ASSIGN_OR_RETURN(const auto scope, ait::CpuAllocatorScope::Create(memory.counted));

  AIT_ASSIGN_OR_RETURN(const double loss, Train(*world, memory));
  if (world->rank() != ait::Rank(0)) return ait::OkStatus();
  std::printf("loss %.4f after %d steps on CPUs %s, memory %s\n", loss, kSteps,
              layout.cpus.ToString().c_str(), applied.memory.c_str());
  std::printf("%s: %s\n", memory.placed->properties().name.c_str(),
              memory.placed->Verify().ToString().c_str());
  const ait::MemoryStatistics all = memory.counted->statistics();
  std::printf("at most %lld bytes at once, %lld in %lld blocks in all\n",
              static_cast<long long>(all.peak_bytes), static_cast<long long>(all.total_bytes),
              static_cast<long long>(all.total_count));
  return ait::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const ait::Status status = Run(argc > 1 ? argv[1] : "");
  if (!status.ok()) std::fprintf(stderr, "%s\n", ait::Message(status).c_str());
  return status.ok() ? 0 : 1;
}
