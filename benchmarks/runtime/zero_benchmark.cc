// SPDX-License-Identifier: Apache-2.0
// The stages of ZeRO: the time of a step, the growth of memory, and the bytes that the engine reports.
//
// The program starts itself as two ranks of one thread each, over shared memory. *Time*: all stages
// take turns in one pair of processes, and that pair takes turns (blocks=3) with, when --peers is
// given, torch DDP, FSDP2 and DeepSpeed, each a launch of its own (benchmarks/peers/zero_step.py). *Memory*:
// a launch for each stage, so that peaks do not mix; what a rank has grown by, less activations and
// gathered units, beside the ideal state. *Formula*: ranks are threads; the memory report of each
// beside P (p + g + m + s) with what the stage divides by N; buckets and gathered units stand aside.
//
// Settings: rounds=5 (a block), blocks=3, configurations=A,B, stages=0,1,2,3,
// parts=formula,memory,step.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "ait/base/throw_on_error.h"
#include "support/rank_programs.h"
#include "support/report.h"
#include "zero_rank.h"

namespace ait::benchmarks {
namespace {

using Samples = std::map<std::string, std::vector<double>>;  // variant or peer -> ms of each round
using nlohmann::json;

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

std::vector<int> Stages(const std::string& text) {
  std::vector<int> stages;
  for (const std::string& word : Words(text)) stages.push_back(std::stoi(word));
  return stages;
}

/// Bytes an element of `parameters` of a rank with N that shard.
double FormulaBytes(int stage, const Precision& precision, int ranks) {
  const double p = SizeOf(precision.parameters), g = SizeOf(precision.gradients);
  const double m = precision.parameters == DType::kFloat32 ? 0 : 4, s = 8;  // AdamW
  const auto share = [&](int from) { return stage >= from ? 1.0 / ranks : 1.0; };
  return p * share(3) + g * share(2) + (m + s) * share(1);
}

class ZeroBenchmark {
 public:
  ZeroBenchmark(Report& report, std::string self) : report_(report), self_(std::move(self)) {
    stages_ = report.Setting("stages", "0,1,2,3");
    rounds_ = report.Setting("rounds", "5");
    blocks_ = std::stoi(report.Setting("blocks", "3"));
  }

  void Formula(const std::string& name) {
    for (const int stage : Stages(stages_)) {
      json all = json::array();
      double measured = 1, formula = 1;  // of the report that is farthest from its formula
      for (const Precision& precision : {Precision::Float32(), Precision::Bf16()}) {
        for (const int ranks : {1, 2, 4, 8}) {
          if (name == "B" && ranks > 2) continue;  // 8 ranks in a process would take 10 GB
          DataParallelOptions options = StageOptions(static_cast<ZeroStage>(stage));
          options.precision = precision;
          for (const RankMemory& memory : ReportsOf(name, options, ranks)) {
            const MemoryBytes& bytes = memory.report.measured;
            const auto held = static_cast<double>(bytes.total() - bytes.buckets - bytes.gathered);
            const double expected =
                FormulaBytes(stage, precision, ranks) * static_cast<double>(memory.parameters);
            all.push_back({{"precision", precision.Describe()},
                           {"ranks", ranks},
                           {"measured", held},
                           {"formula", expected},
                           {"peak_buckets", memory.report.peak_buckets},
                           {"peak_gathered", memory.report.peak_gathered}});
            if (std::abs(std::log(held / expected)) > std::abs(std::log(measured / formula))) {
              measured = held, formula = expected;
            }
          }
        }
      }
      report_.AddValue(name + "/memory/zero" + std::to_string(stage) + "/formula",
                       measured / (1 << 20), "MiB", "formula", formula / (1 << 20),
                       formula / measured);
      report_.Note("reports", all);
    }
  }

  void Memory(const std::string& name) {
    for (const int stage : Stages(stages_)) {
      json worst;
      for (json& row : RunRanks({self_, "memory", name, std::to_string(stage)})) {
        if (worst.is_null() || row["growth_mib"] > worst["growth_mib"]) worst = std::move(row);
      }
      const double ideal = FormulaBytes(stage, Precision::Float32(), 2) *
                           worst["parameters"].get<double>() / (1 << 20);
      const double growth = worst["growth_mib"];
      const double stated =
          worst["activations_mib"].get<double>() + worst["gathered_mib"].get<double>();
      const std::string prefix = name + "/memory/zero" + std::to_string(stage);
      report_.AddValue(prefix + "/ideal", growth - stated, "MiB", "ideal state", ideal,
                       ideal / (growth - stated));
      report_.Note("measured", worst);
      const std::string peer = stage == 0 ? "torch-ddp" : "deepspeed" + std::to_string(stage);
      if (report_.peers_python().empty()) continue;
      CompareGrowth(prefix, growth, name, peer);
      if (stage == 3) CompareGrowth(prefix, growth, name, "fsdp2");
    }
  }

  void Step(const std::string& name) {
    Samples samples;
    for (int block = 0; block < blocks_; ++block) {
      for (const json& row : RunRanks({self_, "step", name, rounds_, stages_})) {
        for (const auto& [variant, ms] : row.items()) Append(samples, variant, ms);
      }
      if (report_.peers_python().empty()) continue;
      for (const std::string peer :
           {"torch-ddp", "fsdp2", "fsdp2-keep", "deepspeed1", "deepspeed2", "deepspeed3"}) {
        for (const json& row : RunPeer(name, peer)) {
          if (row["rank"] == 0) Append(samples, peer, row["step_ms"]);
        }
      }
    }
    for (const auto& [variant, ms] : samples) {
      std::printf("%s: %-11s step %7.1f ms (min %.1f)\n", name.c_str(), variant.c_str(), Median(ms),
                  *std::ranges::min_element(ms));
    }
    for (const int stage : Stages(stages_)) {
      const std::string number = std::to_string(stage);
      const auto add = [&](const std::string& against, const std::string& baseline) {
        const auto& ours = samples.at(StageNames()[static_cast<std::size_t>(stage)]);
        const auto found = samples.find(baseline);
        if (found == samples.end()) return;
        report_.AddTime(
            name + "/step/zero" + number + "/" + against,
            {.ms = Median(ours), .baseline = baseline, .baseline_ms = Median(found->second)});
      };
      if (stage > 0) add("own-ddp", "own-ddp");
      add("torch-ddp", "torch-ddp");
      if (stage > 0) add("deepspeed", "deepspeed" + number);
      if (stage == 2) add("fsdp2-keep", "fsdp2-keep");
      if (stage == 3) add("fsdp2", "fsdp2");
    }
  }

 private:
  std::vector<json> RunPeer(const std::string& name, const std::string& peer) {
    return RunRanks({report_.peers_python(), AIT_PEER_SCRIPT, name, rounds_, peer},
                    RankPort::kFree);
  }

  void CompareGrowth(const std::string& prefix, double growth, const std::string& name,
                     const std::string& peer) {
    double theirs = 0;
    for (const json& row : RunPeer(name, peer)) {
      theirs = std::max(theirs, row["growth_mib"].get<double>());
    }
    report_.AddValue(prefix + "/" + (peer.starts_with("deepspeed") ? "deepspeed" : peer), growth,
                     "MiB", peer, theirs, theirs / growth);
  }

  static void Append(Samples& samples, const std::string& variant, const json& ms) {
    for (const json& value : ms) samples[variant].push_back(value.get<double>());
  }

  Report& report_;
  std::string self_, stages_, rounds_;
  int blocks_ = 0;
};

int Main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 4 && words[0] == "step") {
    return RunStepRank(words[1], std::stoi(words[2]), Stages(words[3]));
  }
  if (words.size() == 3 && words[0] == "memory")
    return RunMemoryRank(words[1], std::stoi(words[2]));
  Report report(argc, argv);
  ZeroBenchmark benchmark(report, argv[0]);
  const std::string parts = report.Setting("parts", "formula,memory,step");
  for (const std::string& name : Words(report.Setting("configurations", "A,B"))) {
    for (const std::string& part : Words(parts)) {
      if (part == "formula") benchmark.Formula(name);
      if (part == "memory") benchmark.Memory(name);
      if (part == "step") benchmark.Step(name);
    }
  }
  return report.Finish();
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) {
  try {
    return ait::benchmarks::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench zero: %s\n", error.what());
    return 1;
  }
}
