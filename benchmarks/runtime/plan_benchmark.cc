// SPDX-License-Identifier: Apache-2.0
// Whether the planner keeps its word: what is predicted against what is measured, over a grid of
// depth, width, precision, micro-batch, ZeRO stage and plan, each in two fresh processes.
//
// For each model (depth, width, precision) one run measures a step of two small micro-batches that
// keeps everything, with plain data parallelism. From these two profiles alone, and from the list of
// parameters, all the others are predicted: larger micro-batches, other stages, segments recomputed.
// Measured are the buffers of the engine, by their own report, and the most that was live of what
// libtorch's allocator has handed out during a step.
//
//   grid/states   parameters, gradients, masters and states: the largest error of the grid, in percent
//   grid/total    with buckets, gathered units, activations and the recompute working set
//
// The ratio is what is allowed (5 and 10 %) over that, at most 100. Settings: models=4x128,8x128,4x256,8x256.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "ait/base/throw_on_error.h"
#include "plan_rank.h"
#include "support/rank_programs.h"
#include "support/report.h"

namespace ait::benchmarks {
namespace {

using nlohmann::json;

/// A point of the grid beside the model. `budget` is the part of the peak that is allowed.
struct Point {
  int stage;
  std::int64_t micro_batch;
  const char* plan;
  double budget;
};
constexpr Point kPoints[] = {{0, 8, "none", 1.0}, {1, 6, "half", 0.5}, {2, 8, "least", 0.0},
                             {3, 3, "half", 0.5}, {2, 3, "none", 1.0}, {3, 8, "most", 0.75}};

class PlanBenchmark {
 public:
  explicit PlanBenchmark(std::string self) : self_(std::move(self)) {}

  void Run(const PlanModel& model) {
    std::vector<StepProfile> profiles;
    for (const json& row : RunRanks({self_, "profile", std::to_string(model.depth),
                                     std::to_string(model.width), model.precision})) {
      profiles.push_back(ProfileFrom(row));
    }
    if (profiles.size() != 2)
      ThrowOnError(InternalError("a run gave ", profiles.size(), " profiles"));
    for (const Point& point : kPoints) {
      RunPoint(model, point, ThrowOnError(ProfileFor(point.micro_batch, profiles[0], profiles[1])));
    }
  }

  void Add(Report& report) const {
    report.AddValue("grid/states", states_, "%", "allowed", 5, 5 / std::max(states_, 0.05));
    report.Note("configurations", rows_);
    report.AddValue("grid/total", total_, "%", "allowed", 10, 10 / std::max(total_, 0.1));
    report.Note("configurations", rows_.size());
  }

 private:
  void RunPoint(const PlanModel& model, const Point& point, const StepProfile& profile) {
    const auto peak = static_cast<double>(PeakOf(profile.segments, {}).bytes);
    const SegmentSchedule least = ThrowOnError(LeastMemory(profile.segments));
    const auto budget = std::max(least.peak.bytes, static_cast<std::int64_t>(peak * point.budget));
    const SegmentSchedule schedule = ThrowOnError(FastestWithin(profile.segments, Bytes(budget)));
    std::string actions;  // of the blocks
    for (std::size_t i = 0; i < profile.segments.size(); ++i) {
      if (profile.segments[i].name.starts_with('(')) continue;
      actions += schedule.actions[i] == SegmentAction::kRecompute ? 'r' : 'k';
    }
    json worst;
    for (const json& row :
         RunRanks({self_, "plan", std::to_string(model.depth), std::to_string(model.width),
                   model.precision, std::to_string(point.stage), std::to_string(point.micro_batch),
                   actions, std::to_string(schedule.peak.bytes)})) {
      if (worst.is_null() || row["measured"]["total"] > worst["measured"]["total"]) worst = row;
    }
    const auto error = [&](const char* part) {
      const auto predicted = worst["predicted"][part].get<double>();
      const auto measured = worst["measured"][part].get<double>();
      return 100 * (predicted - measured) / measured;
    };
    states_ = std::max(states_, std::abs(error("states")));
    total_ = std::max(total_, std::abs(error("total")));
    const std::string name = StrCat(model.depth, "x", model.width, " ", model.precision, " zero",
                                    point.stage, " batch ", point.micro_batch, " ", point.plan);
    constexpr double kMiB = 1 << 20;
    std::printf(
        "%-40s %-9s states %7.1f %+6.2f %%  activations %7.1f %+6.2f %%  total %7.1f "
        "%+6.2f %%  process %.0f MiB\n",
        name.c_str(), actions.c_str(), worst["measured"]["states"].get<double>() / kMiB,
        error("states"), worst["measured"]["activations"].get<double>() / kMiB,
        error("activations"), worst["measured"]["total"].get<double>() / kMiB, error("total"),
        worst["growth_mib"].get<double>());
    std::fflush(stdout);
    rows_.push_back({{"name", name},
                     {"actions", actions},
                     {"states_error_percent", error("states")},
                     {"total_error_percent", error("total")},
                     {"predicted", worst["predicted"]},
                     {"measured", worst["measured"]},
                     {"growth_mib", worst["growth_mib"]}});
  }

  std::string self_;
  double states_ = 0, total_ = 0;
  json rows_ = json::array();
};

PlanModel ModelOf(const std::vector<std::string>& words) {
  return {.depth = std::stoll(words[1]), .width = std::stoll(words[2]), .precision = words[3]};
}

int Main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 4 && words[0] == "profile") return RunProfileRank(ModelOf(words));
  if (words.size() == 8 && words[0] == "plan") {
    return RunPlanRank(ModelOf(words), std::stoi(words[4]), std::stoll(words[5]), words[6],
                       std::stoll(words[7]));
  }
  Report report(argc, argv);
  PlanBenchmark benchmark(argv[0]);
  std::istringstream models(report.Setting("models", "4x128,8x128,4x256,8x256"));
  for (std::string model; std::getline(models, model, ',');) {
    const auto cross = model.find('x');
    for (const char* precision : {"fp32", "bf16"}) {
      benchmark.Run({.depth = std::stoll(model.substr(0, cross)),
                     .width = std::stoll(model.substr(cross + 1)),
                     .precision = precision});
    }
  }
  benchmark.Add(report);
  return report.Finish();
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) {
  try {
    return ait::benchmarks::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench plan: %s\n", error.what());
    return 1;
  }
}
