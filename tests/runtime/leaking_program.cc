// SPDX-License-Identifier: Apache-2.0
// Trains and leaks until memory runs out, and says what the trainer says:
//   leaking_program address-space MIB    with a limit of the address space, so much above its start
//   leaking_program cgroup DIRECTORY     in that cgroup, with AtRisk::kFailStep
// Exits with 0 if the step failed and has a report.
// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <ATen/ops/ones.h>
// clang-format on

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/throw_on_error.h"
#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/optim/adam.h"
#include "ait/runtime/trainer.h"
#include "runtime/toy_model.h"

namespace {

bool LimitAddressSpace(std::int64_t mib) {
  const auto now = ait::ReadProcessMemory().address_space;
  if (!now) return false;
  const rlim_t limit = static_cast<rlim_t>(now->value() + ait::MiB(mib).value());
  const rlimit limits{.rlim_cur = limit, .rlim_max = limit};
  return ::setrlimit(RLIMIT_AS, &limits) == 0;
}

bool Join(const std::string& cgroup) {
  std::ofstream procs(cgroup + "/cgroup.procs");
  procs << ::getpid() << std::flush;
  return static_cast<bool>(procs);
}

int Train(bool in_cgroup) {
  int result = 1;
  ait::testing::RunRanks(1, [&](ait::testing::ToyRank& rank) {
    const auto tracked = ait::TrackingResource::Create(ait::HeapResource::Create());
    ait::TrainerOptions options;
    options.memory.holders = tracked;
    options.memory.at_risk = in_cgroup ? ait::AtRisk::kFailStep : ait::AtRisk::kIgnore;
    options.memory.interval = ait::Duration::zero();
    ait::Trainer trainer(*rank.engine, ait::AdamW(), options);
    std::vector<at::Tensor> tensors;
    std::vector<ait::HostBuffer> buffers;
    while (trainer.step() < 10'000) {
      const auto step = trainer.Step(ait::testing::MakeBatch(0, 6), [&](const auto& batch) {
        const ait::MemoryLabel label("history");
        buffers.push_back(ait::ThrowOnError(ait::HostBuffer::Create(tracked, 100'000)));
        tensors.push_back(at::ones({1 << 19}));  // 2 MiB, touched
        return rank.model.Loss(batch);
      });
      if (step.ok()) continue;
      const bool has_report = trainer.out_of_memory() != nullptr;
      tensors.clear();
      std::puts(std::string(step.status().message()).c_str());
      if (has_report) result = 0;
      return;
    }
  });
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool in_cgroup = std::string_view(argv[1]) == "cgroup";
  if (in_cgroup ? !Join(argv[2]) : !LimitAddressSpace(std::atoll(argv[2]))) return 3;
  return Train(in_cgroup);
}
