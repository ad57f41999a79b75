// SPDX-License-Identifier: Apache-2.0
// What recomputing costs and gives back: a training step of the GPT with 12 blocks and context 256,
// one process of two threads, each variant in fresh processes that take turns (blocks=3).
//
//   block      every block is recomputed, as torch.utils.checkpoint does in the peer
//              (benchmarks/peers/recompute_step.py, with --peers)
//   planned    MemoryPlanner at a budget of half the activations
//   products, attention   every block, but results of products or of attention are kept
//   bf16, int8            saved tensors are compressed
//   file                  saved tensors go to a file in directory=/tmp
//
// Cases gpt12/step/<against>: milliseconds; gpt12/live/plain: bytes of tensors after forward that
// were not there before; gpt12/resident/live: how much less is resident after forward, as a part of
// how much less lives; gpt12/planned_half/plain, gpt12/<variant>/plain: milliseconds.
//
// The rows of recomputing are those of the variant recompute=block; the others that ran have rows of
// their own.
//
// Settings: rounds=4 (a process), blocks=3, allocator=pool (or malloc),
// variants=plain,block,planned,products,attention,bf16,int8,file, directory=/tmp.

#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ait/activation/compression.h"
#include "ait/activation/keep.h"
#include "ait/activation/offload.h"
#include "ait/activation/planner.h"
#include "ait/activation/policies.h"
#include "ait/base/clock.h"
#include "ait/base/throw_on_error.h"
#include "ait/memory/pool.h"
#include "ait/tensor/cpu_allocator.h"
#include "support/memory_watch.h"
#include "support/rank_programs.h"
#include "support/report.h"
#include "training.h"

namespace ait::benchmarks {
namespace {

constexpr int kWarm = 2;
constexpr double kMiB = 1 << 20;

GptConfig Config(const std::string& name) {
  if (name == "gpt12") {
    return {.layers = 12, .width = 384, .heads = 6, .context = 256, .batch = 8};
  }
  return *GptConfig::Named(name);
}

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

std::unique_ptr<ActivationPlan> PlanFor(const std::string& variant, const std::string& directory,
                                        const GptConfig& config) {
  const std::vector<std::string> names = BlockNames(config);
  CheckpointPolicy policy;
  ActivationPlanOptions options;
  if (variant == "block" || variant == "products" || variant == "attention") {
    policy = CheckpointPolicy::All();
    if (variant == "products") policy.KeepResults(MatrixProducts());
    if (variant == "attention") policy.KeepResults(AttentionOperators());
  } else if (variant == "bf16" || variant == "int8" || variant == "file") {
    policy.Add({.action = SegmentAction::kOffload});
    if (variant == "file") {
      options.offload = ThrowOnError(ActivationOffload::Create({.directory = directory}));
    } else {
      options.offload = ThrowOnError(ActivationCompression::Create(
          {.format = variant == "int8" ? SavedFormat::kInt8 : SavedFormat::kBf16}));
    }
  }
  return ThrowOnError(policy.MakePlan(names, std::move(options)));
}

/// In a process of its own: prints one JSON object.
int RunVariant(const std::string& name, const std::string& variant, const std::string& allocator,
               const std::string& directory, int rounds) {
  at::set_num_threads(2);
  std::optional<CpuAllocatorScope> scope;
  if (allocator == "pool") {
    scope = ThrowOnError(CpuAllocatorScope::Create(ThrowOnError(PoolResource::Create())));
  }
  const GptConfig config = Config(name);
  Training training(config, PlanFor(variant, directory, config));
  nlohmann::json row;
  for (int i = 0; i < kWarm; ++i) training.Step();
  if (variant == "planned") {
    MemoryPlanner planner(training.plan());
    const auto step = [&] {
      training.Step();
      return OkStatus();
    };
    const StepProfile profile = ThrowOnError(planner.Measure(step));
    ThrowOnError(planner.Choose(Bytes(profile.peak_bytes / 2)));
    const PlanOutcome outcome = ThrowOnError(planner.Check(step));
    row["predicted_mib"] = static_cast<double>(outcome.predicted_bytes) / kMiB;
    row["measured_mib"] = static_cast<double>(outcome.measured_bytes) / kMiB;
    row["kept_mib"] = static_cast<double>(outcome.kept_bytes) / kMiB;
    row["recomputed"] = outcome.recomputed;
  }
  std::vector<double> resident;
  for (int i = 0; i < rounds; ++i) {
    const Time start = SystemClock().now();
    const at::Tensor loss = training.Forward();
    const Time forward = SystemClock().now();
    resident.push_back(ResidentMiB::Now().resident);
    const Time backward = SystemClock().now();
    training.Finish(loss);
    const auto taken = (SystemClock().now() - backward) + (forward - start);
    row["step_ms"].push_back(std::chrono::duration<double, std::milli>(taken).count());
    row["forward_ms"].push_back(std::chrono::duration<double, std::milli>(forward - start).count());
  }
  row["resident_mib"] = Median(resident);
  at::Tensor loss;
  row["live_mib"] =
      static_cast<double>(TensorMemory::LiveAfter([&] { loss = training.Forward(); })) / kMiB;
  training.Finish(loss);
  std::printf("%s\n", row.dump().c_str());
  return 0;
}

/// What several processes of a variant have printed.
struct Samples {
  void Add(const nlohmann::json& row) {
    for (const auto& ms : row["step_ms"]) step_ms.push_back(ms);
    resident_mib.push_back(row["resident_mib"]);
    if (row.contains("live_mib")) live_mib.push_back(row["live_mib"]);
    last = row;
  }
  double step() const { return Median(step_ms); }

  std::vector<double> step_ms, resident_mib, live_mib;
  nlohmann::json last;
};

void AddRows(Report& report, const std::string& name, std::map<std::string, Samples>& ours,
             std::map<std::string, Samples>& peers) {
  const auto has = [&](const std::string& variant) {
    return ours.contains(variant) && ours.contains("plain");
  };
  const std::string recomputing = report.Setting("recompute", "block");
  Samples& plain = ours["plain"];
  for (const auto& [variant, samples] : ours) {
    if (variant == "plain" || !has(variant)) continue;
    const std::string row = variant == recomputing ? "/step/plain"
                            : variant == "planned" ? "/planned_half/plain"
                                                   : "/" + variant + "/plain";
    report.AddTime(name + row,
                   {.ms = samples.step(), .baseline = "own plain", .baseline_ms = plain.step()});
    report.Note("variant", variant);
    report.Note("live_mib", Median(samples.live_mib));
    report.Note("live_mib_plain", Median(plain.live_mib));
    for (const char* const key : {"predicted_mib", "measured_mib", "kept_mib", "recomputed"}) {
      if (samples.last.contains(key)) report.Note(key, samples.last[key]);
    }
  }
  if (has(recomputing)) {
    Samples& block = ours[recomputing];
    const double live = Median(block.live_mib), live_plain = Median(plain.live_mib);
    const double fall = Median(plain.resident_mib) - Median(block.resident_mib);
    report.AddValue(name + "/live/plain", live, "MiB", "own plain", live_plain, live_plain / live);
    report.AddValue(name + "/resident/live", fall, "MiB less", "less that lives", live_plain - live,
                    fall / (live_plain - live));
    report.Note("resident_mib", Median(block.resident_mib));
    report.Note("resident_mib_plain", Median(plain.resident_mib));
    if (peers.contains("block")) {
      report.AddTime(name + "/step/torch-checkpoint", {.ms = block.step(),
                                                       .baseline = "torch.utils.checkpoint",
                                                       .baseline_ms = peers["block"].step()});
      report.Note("slower_than_plain", block.step() / plain.step());
      report.Note("peer_slower_than_plain", peers["block"].step() / peers["none"].step());
      report.Note("peer_plain_ms", peers["none"].step());
    }
  }
}

int Main(int argc, char** argv) {
  if (argc == 7 && std::string(argv[1]) == "variant") {
    return RunVariant(argv[2], argv[3], argv[4], argv[5], std::stoi(argv[6]));
  }
  Report report(argc, argv);
  const std::string name = report.Setting("configuration", "gpt12");
  const std::string rounds = report.Setting("rounds", "4");
  const RankCount alone = {.ranks = WorldSize(1), .threads = 2};
  std::map<std::string, Samples> ours, peers;
  for (int block = 0; block < std::stoi(report.Setting("blocks", "3")); ++block) {
    for (const std::string& variant : Words(
             report.Setting("variants", "plain,block,planned,products,attention,bf16,int8,file"))) {
      const std::vector<std::string> command = {argv[0],
                                                "variant",
                                                name,
                                                variant,
                                                report.Setting("allocator", "pool"),
                                                report.Setting("directory", "/tmp"),
                                                rounds};
      for (const auto& row : RunRanks(command, RankPort::kInherited, alone)) ours[variant].Add(row);
    }
    if (report.peers_python().empty()) continue;
    for (const std::string mode : {"none", "block"}) {
      for (const auto& row : RunRanks({report.peers_python(), AIT_PEER_SCRIPT, name, mode, rounds},
                                      RankPort::kFree, alone)) {
        peers[mode].Add(row);
      }
    }
  }
  AddRows(report, name, ours, peers);
  return report.Finish();
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) {
  try {
    return ait::benchmarks::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench activation: %s\n", error.what());
    return 1;
  }
}
