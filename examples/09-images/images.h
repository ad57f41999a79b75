// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_EXAMPLES_09_IMAGES_IMAGES_H_
#define AIT_EXAMPLES_09_IMAGES_IMAGES_H_

#include <cstdint>
#include <string>

#include "ait/base/status.h"

/// Writes the images of a folder of idx files as JPEGs in tar shards: OUT/train and OUT/test.
ait::Status PackImages(const std::string& folder, const std::string& out);

struct TrainOptions {
  std::string data;            // what PackImages wrote
  std::int64_t epochs = 2;     // --epochs
  std::int64_t steps = 0;      // --steps: so many, instead of whole epochs
  std::int64_t threads = 2;    // --threads: that read and decode, of each rank
  bool io_experiment = false;  // --io-experiment
  std::string out;             // --out: a directory for metrics.jsonl; empty: none
};

/// Trains a CNN; rank 0 prints its accuracy on the test images.
ait::Status TrainOnImages(const TrainOptions& options);

#endif  // AIT_EXAMPLES_09_IMAGES_IMAGES_H_
