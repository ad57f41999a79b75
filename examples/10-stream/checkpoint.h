// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_EXAMPLES_10_STREAM_CHECKPOINT_H_
#define AIT_EXAMPLES_10_STREAM_CHECKPOINT_H_

// A folder with the newest checkpoint of a run: all of it or, before the first, nothing.
//
// Files are written under names with the step, durably, and count once checkpoint.json names them,
// which is written last and at once. So a run that is killed between two files has the checkpoint
// before.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/dataset_state.h"
#include "ait/optim/optimizer.h"
#include "ait/parallel/data_parallel.h"
#include "ait/runtime/trainer.h"

struct Checkpoint {
  std::string weights;  // files in the folder
  std::string optimizer;
  std::string samples;  // ids that were delivered since the checkpoint before
  ait::TrainerState trainer;
  ait::DatasetState data;
};

/// A sample that was delivered: its place in the order of the run, and its number.
struct Delivered {
  std::int64_t place = 0;
  std::int64_t id = 0;
};

/// What checkpoint.json says; nothing if there is none. **Errors.** DataLoss: it is no such file.
ait::StatusOr<std::optional<Checkpoint>> FindCheckpoint(const std::string& folder);

/// **Collective.** Into an engine and a trainer that were just made.
ait::Status LoadCheckpoint(const std::string& folder, const Checkpoint& checkpoint,
                           ait::DataParallel& engine, const ait::Optimizer& optimizer,
                           ait::Trainer& trainer);

/// **Collective.** Between two steps. `delivered`: what this rank got since the last call.
ait::Status SaveCheckpoint(const std::string& folder, ait::DataParallel& engine,
                           const ait::Optimizer& optimizer, ait::Trainer& trainer,
                           const ait::DatasetState& data, const std::vector<Delivered>& delivered);

#endif  // AIT_EXAMPLES_10_STREAM_CHECKPOINT_H_
