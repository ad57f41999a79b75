// SPDX-License-Identifier: Apache-2.0
#include "cli/plan.h"

#include <cstdio>
#include <cxxopts.hpp>
#include <string>
#include <vector>

#include "cli/plan_report.h"
#include "cli/plan_setup.h"
#include "cli/program.h"

namespace ait::cli {
namespace {

constexpr char kExamples[] = R"(
A size is a number with k, M, B (of parameters) or kB, MB, GB, KiB, MiB, GiB (of memory) behind it.
Precisions are those of DataParallelOptions, and fp16-pure: parameters and gradients in fp16.

Examples:
  ait plan --params 7B --precision fp16-pure        14 + 14 + 56 = 84 GB
  ait plan --params 7B --precision bf16 --ranks 8   each stage of ZeRO over eight ranks
  ait plan --layers 32 --hidden 4096 --heads 32 --vocabulary 32000 --sequence 2048 --micro-batch 4
      --precision bf16 --ranks 8 --zero 2 --budget 80GB       activations too, and what would help
)";

void AddOptions(cxxopts::Options& options) {
  cxxopts::OptionAdder add = options.add_options();
  const auto text = [](const char* fallback = nullptr) {
    auto value = cxxopts::value<std::string>();
    return fallback == nullptr ? value : value->default_value(fallback);
  };
  add("params", "number of parameters; derived from the shape if that is given", text(), "SIZE");
  add("precision",
      "fp32, bf16, bf16-remainder, bf16-kahan, bf16-stochastic, bf16-pure, fp16, fp16-pure",
      text("bf16"), "NAME");
  add("optimizer", "adam, lion, sgd-momentum, sgd, adafactor", text("adam"), "NAME");
  add("states", "format of the optimizer's states: fp32 or 8bit", text("fp32"), "FORMAT");
  add("zero", "stage of ZeRO, or several: 0..3", text(), "STAGE");
  add("ranks", "ranks that shard", text("1"), "N");
  add("ranks-per-host", "ranks that share a host's memory; all if not given", text(), "N");
  add("nodes-per-host", "NUMA nodes that the ranks of a host are spread over", text("1"), "N");
  add("layers", "layers of a transformer", text(), "N");
  add("hidden", "its width", text(), "N");
  add("heads", "its attention heads", text("1"), "N");
  add("vocabulary", "its tokens", text("0"), "N");
  add("sequence", "tokens a sample; without it activations are left out", text(), "N");
  add("micro-batch", "samples a rank and micro-step", text("1"), "N");
  add("accumulate", "micro-steps a step", text("1"), "N");
  add("attention", "fused, or materialized: scores are stored", text("fused"), "KIND");
  add("recompute", "layers that are recomputed in backward: none or all", text("none"), "WHICH");
  add("offload", "the optimizer's states are in a file");
  add("budget", "of memory a rank: says what fits, and what would help", text(), "SIZE");
  add("json", "print JSON");
  add("h,help", "print this help");
}

}  // namespace

int RunPlan(int argc, char** argv) {
  cxxopts::Options options("ait plan",
                           "Tells how much memory a training run will take, before it runs.\n");
  try {
    AddOptions(options);
    const cxxopts::ParseResult parsed = options.parse(argc, argv);
    if (parsed.count("help") != 0) {
      std::printf("%s%s", options.help().c_str(), kExamples);
      return kSuccess;
    }
    if (!parsed.unmatched().empty()) {
      return FailUsage("plan", "takes no argument " + parsed.unmatched().front());
    }
    const StatusOr<PlanQuestion> question = ReadQuestion(parsed);
    if (!question.ok()) return FailUsage("plan", Message(question.status()));
    const StatusOr<PlanAnswer> answer = Answer(*question);
    if (!answer.ok()) return Fail("plan", answer.status());
    const std::string report =
        parsed.count("json") != 0 ? ToJson(*question, *answer) : ToText(*question, *answer);
    std::fputs(report.c_str(), stdout);
    return question->budget && !answer->fits() ? kFailure : kSuccess;
  } catch (const cxxopts::exceptions::exception& error) {
    return FailUsage("plan", error);
  }
}

}  // namespace ait::cli
