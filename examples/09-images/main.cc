// SPDX-License-Identifier: Apache-2.0
// Packs images into tar shards, and trains on them.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ait/launch/error_file.h"
#include "images.h"

namespace {

constexpr char kUsage[] =
    "usage: images pack OUT [FOLDER]\n"
    "       images train DATA [--epochs N] [--steps N] [--threads N] [--io-experiment 0|1]\n"
    "                         [--out DIRECTORY]";

ait::Status Run(const std::vector<std::string>& words) {
  if (words.size() >= 2 && words[0] == "pack") {
    return PackImages(words.size() > 2 ? words[2] : "/usr/share/datasets/fashion-mnist", words[1]);
  }
  if (words.size() < 2 || words[0] != "train" || words.size() % 2 != 0) {
    return ait::InvalidArgumentError(kUsage);
  }
  TrainOptions options{.data = words[1]};
  for (std::size_t i = 2; i < words.size(); i += 2) {
    const std::int64_t value = std::atoll(words[i + 1].c_str());
    if (words[i] == "--out") {
      options.out = words[i + 1];
      continue;
    }
    if (value < 0 || (value == 0 && words[i + 1] != "0")) {
      return ait::InvalidArgumentError(words[i], " cannot be '", words[i + 1], "'\n", kUsage);
    }
    if (words[i] == "--epochs") {
      options.epochs = value;
    } else if (words[i] == "--steps") {
      options.steps = value;
    } else if (words[i] == "--threads") {
      options.threads = value;
    } else if (words[i] == "--io-experiment") {
      options.io_experiment = value == 1;
    } else {
      return ait::InvalidArgumentError("no option ", words[i], "\n", kUsage);
    }
  }
  if (options.epochs < 1) return ait::InvalidArgumentError("--epochs is at least 1\n", kUsage);
  return TrainOnImages(options);
}

}  // namespace

int main(int argc, char** argv) {
  const ait::Status status = Run({argv + 1, argv + argc});
  if (status.ok()) return 0;
  std::fprintf(stderr, "images: %s\n", ait::Message(status).c_str());
  ait::WriteErrorFile(status).IgnoreError();  // for torchrun's report
  return 1;
}
