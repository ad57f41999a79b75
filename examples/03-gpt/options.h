// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_EXAMPLES_03_GPT_OPTIONS_H_
#define AIT_EXAMPLES_03_GPT_OPTIONS_H_

// The command line of the example, and the summary it prints.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/comm/world.h"
#include "ait/observe/step_metrics.h"
#include "ait/parallel/compression.h"
#include "gpt.h"

struct Options {
  std::string mode;  // "train" or "generate"
  GptConfig config;  // --size tiny, quickstart, A or B

  // train
  std::string data = "build/data/gcide";           // --data: what `ait pack` wrote
  std::string out = "build/runs/gpt";              // --out: weights.safetensors and metrics.jsonl
  ait::Duration length = std::chrono::minutes(2);  // --minutes
  std::int64_t steps = 0;                          // --steps: so many, instead of --minutes
  double learning_rate = 3e-3;                     // --lr
  std::uint64_t seed = 1;                          // --seed
  std::string transport = "auto";                  // --transport auto, shm, gloo or hierarchical
  bool bf16 = true;            // --bf16 0 or 1; the default is what the processor has
  bool io_experiment = false;  // --io-experiment 1: would free data make the run faster?
  std::shared_ptr<ait::GradientCompression> compression;  // --compress, for slow links

  // generate
  std::string weights = "build/runs/gpt/weights.safetensors";  // --weights
  std::string prompt = "The ";                                 // --prompt
  std::int64_t tokens = 300;                                   // --tokens
  double temperature = 0.7;                                    // --temperature

  /// **Errors.** InvalidArgument with the usage text.
  static ait::StatusOr<Options> Parse(int argc, char** argv);
};

/// What carries collectives; nullptr if nothing has that name.
std::shared_ptr<ait::TransportProvider> TransportNamed(const std::string& name);

/// Loss at the start and at the end, and tokens per second after the first ten steps.
class Summary {
 public:
  void Add(const ait::StepMetrics& metrics, std::int64_t tokens);
  void Print(const std::string& directory) const;
  double steps() const { return static_cast<double>(steps_); }

 private:
  std::int64_t steps_ = 0;
  double first_loss_ = 0;
  double last_loss_ = 0;  // smoothed
  std::int64_t tokens_ = 0;
  ait::Time begin_{};
  ait::Time end_{};
};

#endif  // AIT_EXAMPLES_03_GPT_OPTIONS_H_
