// SPDX-License-Identifier: Apache-2.0
// bench_allocator: libtorch's CPU allocations from a pool, beside malloc.
//
// The GPT of the peers' checkpointing runs (12 layers, width 384, 6 heads, context 256, batch 8: 21.6 M
// parameters; fp32, AdamW) trains in one process on two threads, with
//
//   pool         CpuAllocatorScope over PoolResource
//   glibc        malloc as it is
//   glibc-trim   malloc told to give memory back at once: blocks from 128 KiB on mapped, one arena, the top
//                trimmed (the tunables mmap_threshold, trim_threshold, arena_max)
//
// each in a fresh child process, which take turns (launches=2); a value is the median of all steps.
// *Resident* is what the process grew by since before the model, after a forward that the settled
// training had reached; *live* is what tensors hold at that moment, counted by libtorch's profiler
// from the first tensor of the model on.
//
// Settings: steps=6, launches=2, layers=12, threads=2.
#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <malloc.h>
#include <time.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ait/base/throw_on_error.h"
#include "ait/memory/pool.h"
#include "ait/tensor/cpu_allocator.h"
#include "gpt.h"
#include "support/memory_watch.h"
#include "support/report.h"

namespace ait::benchmarks {
namespace {

using nlohmann::json;

/// Counts what tensors hold.
struct LiveBytes final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    bytes += size;
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::atomic<std::int64_t> bytes{0};
};

/// A model, its AdamW, and one batch.
class Training {
 public:
  explicit Training(const GptConfig& config) : model_(config) {
    const at::Tensor tokens =
        at::randint(config.vocabulary, {config.batch, config.context + 1}, at::kLong);
    inputs_ = tokens.slice(1, 0, config.context).contiguous();
    targets_ = tokens.slice(1, 1).contiguous().flatten();
    for (const at::Tensor& parameter : model_->parameters()) {
      parameters_.push_back(parameter);
      means_.push_back(at::zeros_like(parameter));
      variances_.push_back(at::zeros_like(parameter));
      steps_.push_back(at::zeros({}));
    }
  }

  /// `after_forward` is called when everything is saved for backward.
  template <typename Function>
  void Step(const Function& after_forward) {
    const at::Tensor loss = at::cross_entropy_loss(model_(inputs_).flatten(0, 1), targets_);
    after_forward();
    loss.backward();
    std::vector<at::Tensor> gradients;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      gradients.push_back(parameters_[i].grad());
      steps_[i] += 1;
    }
    const at::NoGradGuard no_grad;
    at::_fused_adamw_(parameters_, gradients, means_, variances_, {}, steps_, /*lr=*/3e-4, 0.9,
                      0.95,
                      /*weight_decay=*/0.1, /*eps=*/1e-8, /*amsgrad=*/false, /*maximize=*/false);
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }

 private:
  Gpt model_;
  at::Tensor inputs_, targets_;
  std::vector<at::Tensor> parameters_, means_, variances_, steps_;
};

/// Of all threads of this process, user and system.
double CpuMilliseconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

/// The child: trains, and prints one JSON object.
int RunChild(const std::string& variant, int steps, int layers, int threads) {
  if (variant == "glibc-trim") {
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_TRIM_THRESHOLD, 128 << 10);
    mallopt(M_ARENA_MAX, 1);
  }
  at::set_num_threads(threads);
  torch::manual_seed(1);
  std::shared_ptr<PoolResource> pool;
  std::optional<CpuAllocatorScope> scope;
  if (variant == "pool") {
    pool = ThrowOnError(PoolResource::Create());
    scope.emplace(ThrowOnError(CpuAllocatorScope::Create(pool)));
  }
  // What code, threads and libraries take once, whatever the allocator.
  Training({.layers = 1, .width = 32, .heads = 2, .context = 32, .batch = 2}).Step([] {});
  const double before = ResidentMiB::Now().own();
  const auto live = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
  Training training({.layers = layers, .width = 384, .heads = 6, .context = 256, .batch = 8});
  json result = {{"step_ms", json::array()}, {"cpu_ms", json::array()}};
  double seen_resident = 0, seen_live = 0;
  for (int step = -2; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    const double cpu_begin = CpuMilliseconds();
    std::chrono::steady_clock::duration looking{};
    training.Step([&] {
      const auto looked = std::chrono::steady_clock::now();
      seen_resident = ResidentMiB::Now().own() - before;
      seen_live = static_cast<double>(live->bytes) / (1 << 20);
      looking = std::chrono::steady_clock::now() - looked;
    });
    if (step < 0) continue;
    result["cpu_ms"].push_back(CpuMilliseconds() - cpu_begin);
    result["step_ms"].push_back(std::chrono::duration<double, std::milli>(
                                    std::chrono::steady_clock::now() - begin - looking)
                                    .count());
  }
  result["resident_mib"] = seen_resident;
  result["live_mib"] = seen_live;
  if (pool != nullptr) {
    const PoolStatistics now = pool->statistics();
    result["pool"] = {{"touched_mib", static_cast<double>(now.touched_bytes) / (1 << 20)},
                      {"peak_mib", static_cast<double>(now.peak_bytes) / (1 << 20)},
                      {"returned_mib", static_cast<double>(now.returned_total_bytes) / (1 << 20)},
                      {"waste", now.waste()}};
  }
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

json RunVariant(const std::string& self, const std::string& variant, const Report& report) {
  const std::string command = self + " child " + variant + " " + report.Setting("steps", "6") +
                              " " + report.Setting("layers", "12") + " " +
                              report.Setting("threads", "2");
  std::FILE* const child = popen(command.c_str(), "r");
  if (child == nullptr) throw std::runtime_error("cannot start " + command);
  std::string text;
  for (int c = 0; (c = std::fgetc(child)) != EOF;) text += static_cast<char>(c);
  if (pclose(child) != 0) throw std::runtime_error(command + " failed");
  return json::parse(text);
}

int Run(int argc, char** argv) {
  if (argc == 6 && std::string(argv[1]) == "child") {
    return RunChild(argv[2], std::stoi(argv[3]), std::stoi(argv[4]), std::stoi(argv[5]));
  }
  Report report(argc, argv);
  std::map<std::string, std::vector<double>> steps, resident, live;
  json pool;
  for (int launch = 0; launch < std::stoi(report.Setting("launches", "2")); ++launch) {
    for (const std::string variant : {"pool", "glibc", "glibc-trim"}) {
      const json result = RunVariant(argv[0], variant, report);
      for (const double ms : result["step_ms"]) steps[variant].push_back(ms);
      resident[variant].push_back(result["resident_mib"]);
      live[variant].push_back(result["live_mib"]);
      if (result.contains("pool")) pool = result["pool"];
      const std::vector<double> ms = result["step_ms"];
      std::printf(
          "%s: step %.1f ms (min %.1f), of CPU %.1f ms, resident %.0f MiB after forward, live %.0f "
          "MiB\n",
          variant.c_str(), Median(ms), *std::ranges::min_element(ms), Median(result["cpu_ms"]),
          result["resident_mib"].get<double>(), result["live_mib"].get<double>());
      std::fflush(stdout);
    }
  }
  for (const std::string baseline : {"glibc", "glibc-trim"}) {
    report.AddTime("gpt12/step/" + baseline, {.ms = Median(steps["pool"]),
                                              .baseline = baseline,
                                              .baseline_ms = Median(steps[baseline])});
  }
  const double of_pool = Median(resident["pool"]), of_live = Median(live["pool"]);
  report.AddValue("gpt12/resident/live", of_pool / of_live, "of live", "glibc",
                  Median(resident["glibc"]) / Median(live["glibc"]),
                  Median(resident["glibc"]) / of_pool);
  report.Note("resident_mib", of_pool);
  report.Note("live_mib", of_live);
  report.Note("glibc_resident_mib", Median(resident["glibc"]));
  report.Note("glibc_trim_resident_mib", Median(resident["glibc-trim"]));
  report.Note("pool", pool);
  std::printf("pool: %s\n", pool.dump().c_str());
  return report.Finish();
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) {
  try {
    return ait::benchmarks::Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench allocator: %s\n", error.what());
    return 1;
  }
}
