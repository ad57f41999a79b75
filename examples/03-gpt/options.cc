// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <cstdio>
#include <exception>

#include "ait/comm/automatic.h"
#include "ait/tensor/autocast.h"
#include "ait/tensor/gloo.h"

ait::StatusOr<Options> Options::Parse(int argc, char** argv) {
  const auto usage = [&](const std::string& problem) {
    return ait::InvalidArgumentError(
        problem,
        "\nusage: gpt train    [--data DIR] [--out DIR] [--minutes M] "
        "[--steps N] [--size tiny|quickstart|A|B] [--lr X] [--seed N] [--bf16 0|1] "
        "[--transport auto|shm|gloo|hierarchical] [--compress none|bf16|int8|topk|powersgd] "
        "[--io-experiment 0|1]\n      "
        " gpt generate [--weights FILE] [--prompt "
        "TEXT] [--tokens N] [--temperature X] "
        "[--size …] [--seed N]");
  };
  Options options;
  options.config = *GptConfig::Named("quickstart");
  options.bf16 = ait::Autocast::Bf16IsFastHere();
  options.mode = argc > 1 ? argv[1] : "";
  if (options.mode != "train" && options.mode != "generate") return usage("say train or generate");
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) return usage(name + " has no value");
    const std::string value = argv[i + 1];
    try {
      if (name == "--data")
        options.data = value;
      else if (name == "--out")
        options.out = value;
      else if (name == "--weights")
        options.weights = value;
      else if (name == "--prompt")
        options.prompt = value;
      else if (name == "--lr")
        options.learning_rate = std::stod(value);
      else if (name == "--seed")
        options.seed = std::stoull(value);
      else if (name == "--transport")
        options.transport = value;
      else if (name == "--bf16")
        options.bf16 = value == "1";
      else if (name == "--io-experiment")
        options.io_experiment = value == "1";
      else if (name == "--steps")
        options.steps = std::stoll(value);
      else if (name == "--tokens")
        options.tokens = std::stoll(value);
      else if (name == "--temperature")
        options.temperature = std::stod(value);
      else if (name == "--compress") {
        const auto compression = ait::CompressionNamed(value);
        if (!compression.ok()) return usage(ait::Message(compression.status()));
        options.compression = *compression;
      } else if (name == "--minutes") {
        options.length = std::chrono::duration_cast<ait::Duration>(
            std::chrono::duration<double, std::ratio<60>>(std::stod(value)));
      } else if (name == "--size") {
        const auto config = GptConfig::Named(value);
        if (!config) return usage("no size " + value);
        options.config = *config;
      } else {
        return usage("no option " + name);
      }
    } catch (const std::exception&) {
      return usage(name + " is not a number: " + value);
    }
  }
  if (TransportNamed(options.transport) == nullptr)
    return usage("no transport " + options.transport);
  if (options.prompt.empty()) return usage("the prompt is empty");
  return options;
}

std::shared_ptr<ait::TransportProvider> TransportNamed(const std::string& name) {
  if (name == "auto") return ait::Automatic({.between = ait::Gloo()});
  if (name == "shm") return ait::SharedMemory();
  if (name == "gloo") return ait::Gloo();
  if (name == "hierarchical") return ait::Hierarchical({.between = ait::Gloo()});
  return nullptr;
}

void Summary::Add(const ait::StepMetrics& metrics, std::int64_t tokens) {
  const double loss = metrics.loss.value_or(last_loss_);
  if (++steps_ == 1) first_loss_ = last_loss_ = loss;
  last_loss_ += (loss - last_loss_) / static_cast<double>(std::min<std::int64_t>(steps_, 20));
  end_ = ait::SystemClock().now();
  if (steps_ == 10) begin_ = end_;
  if (steps_ > 10) tokens_ += tokens;
}

void Summary::Print(const std::string& directory) const {
  const double seconds = std::chrono::duration<double>(end_ - begin_).count();
  std::printf("loss %.3f at the start, %.3f at the end, after %lld steps", first_loss_, last_loss_,
              static_cast<long long>(steps_));
  if (tokens_ > 0) std::printf("; %.0f tokens/s", static_cast<double>(tokens_) / seconds);
  std::printf("\nweights and metrics: %s\n", directory.c_str());
}
