// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_MEMORY_SETUP_H_
#define AIT_PARALLEL_MEMORY_SETUP_H_

// What `PredictMemory` must know of a model, taken from the model instead of guessed: padding, the
// slices of ranks, buckets and units are those that an engine with the same options would lay out.
// No engine is made, and nothing of its size is allocated.
//
//   AIT_ASSIGN_OR_RETURN(TrainingSetup setup, SetupOf(parameters, options, WorldSize(8)));
//   setup.segments = profile.segments;                       // ait/activation/planner.h
//   AIT_ASSIGN_OR_RETURN(MemoryPrediction prediction, PredictMemory(setup));
//   …
//   std::puts(prediction.DescribeBeside(PartsOf(engine->Memory())).c_str());

#include "ait/activation/memory_model.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/optim/precision.h"
#include "ait/parallel/flat_layout.h"
#include "ait/parallel/memory_report.h"

namespace ait::inline v0 {

struct DataParallelOptions;
class NamedTensors;

/// The counts of a layout. `prefetch` units are gathered ahead.
ParameterCounts CountsOf(const FlatLayout& layout, int prefetch = 1);

ElementBytes BytesOf(const Precision& precision);

/// For an optimizer with two fp32 moments; change what is otherwise. `ranks` are those that shard.
/// **Errors.** as `DataParallel::Create` for the parameters and units.
StatusOr<TrainingSetup> SetupOf(const NamedTensors& parameters, const DataParallelOptions& options,
                                WorldSize ranks);

/// What an engine holds, with the peaks of its buckets and units. Activations are not the engine's.
MemoryParts PartsOf(const MemoryReport& report);

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_MEMORY_SETUP_H_
