// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_MEMORY_MODEL_H_
#define AIT_ACTIVATION_MEMORY_MODEL_H_

// How much memory a training run takes, by part, before it runs: arithmetic, without libtorch.
//
//   TrainingSetup setup{.parameters = {.elements = 7'000'000'000},
//                       .bytes = {.parameters = 2, .gradients = 2, .masters = 0},
//                       .zero_stage = 2, .ranks = 8};
//   AIT_ASSIGN_OR_RETURN(MemoryPrediction prediction, PredictMemory(setup));
//   std::puts(prediction.Describe().c_str());
//
// P elements, N ranks that shard; p, g, m bytes an element of parameters, gradients and masters; s
// of the optimizer's states (docs/zero.md):
//
//   parameters   p P, with stage 3 p P / N for those in units      buckets    two, where gradients are
//   gradients    g P, from stage 2 on g P / N                                 reduced in each micro-step
//   masters      m P, from stage 1 on m P / N                      gathered   stage 3: prefetch + 1 units
//   states       s P, from stage 1 on s P / N                      staging    chunks of states in a file
//
//   activations  what segments hold at the moment of the peak      slack      what the allocator wastes
//   working      what runs then needs beyond: gradients of
//                activations, and what is recomputed at once
//
// `ParameterCounts` may come from a real model (ait/parallel/memory_setup.h), with padding, buckets and
// units as the engine lays them out; then model states are what the engine allocates. With a count
// alone padding is left out.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/activation/schedule.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/optim/offload.h"
#include "ait/optim/state_format.h"

namespace ait::inline v0 {

/// Elements of the parameters; what is 0 is derived from `elements`.
struct ParameterCounts {
  std::int64_t elements = 0;        // trainable
  std::int64_t frozen = 0;          // not trainable
  std::int64_t flat = 0;            // trainable ones with padding
  std::int64_t whole = 0;           // part of `flat` that stage 3 does not shard: in no unit
  std::int64_t owned = 0;           // the most that one rank owns of `flat`
  std::int64_t owned_in_units = 0;  // the most that one rank owns of what is in units
  std::int64_t buckets = 0;         // in the two buffers of buckets in flight
  std::int64_t gathered = 0;        // stage 3: in the largest units that are whole at once
  std::int64_t largest_unit = 0;    // stage 3: used where `gathered` is 0
  std::int64_t small = 0;       // in tensors below 4096 elements, which 8-bit states leave alone
  std::int64_t owned_8bit = 0;  // bytes of one 8-bit moment on the rank that has most
  std::int64_t factors = 0;     // entries of Adafactor's rows, columns and vectors
};

/// Bytes an element.
struct ElementBytes {
  int parameters = 4;
  int gradients = 4;
  int masters = 0;
  bool is_bf16 = false;  // the parameters: what Masters::kRemainder needs
};

enum class OptimizerKind : std::uint8_t { kAdam, kLion, kSgdMomentum, kSgd, kAdafactor };

/// For command lines: "adam", "lion", "sgd-momentum", "sgd", "adafactor".
std::string_view Name(OptimizerKind kind);
StatusOr<OptimizerKind> OptimizerNamed(std::string_view name);

/// What a rank keeps of gradients over the micro-steps of a step.
enum class KeptGradients : std::uint8_t {
  kByStage,  // all with stages 0 and 1, and its slices with 2 and 3
  kAll,      // ReduceWhen::kOnce
  kReduced,  // ReduceWhen::kEachMicroStep: through buckets; all with stages 0 and 1
};

struct TrainingSetup {
  ParameterCounts parameters;
  ElementBytes bytes;
  OptimizerKind optimizer = OptimizerKind::kAdam;
  StateFormat state = StateFormat::kFloat32;
  int zero_stage = 0;      // 0 to 3
  int ranks = 1;           // that shard
  int ranks_per_host = 0;  // 0: all of them
  int nodes_per_host = 1;  // NUMA nodes that the ranks of a host are spread over
  KeptGradients gradients = KeptGradients::kByStage;
  int prefetch = 1;  // units gathered ahead
  Bytes bucket_cap = MiB(25);
  StateOffload offload;  // states and masters in a file

  /// What segments cost with `micro_batch` samples, and what is done with each; empty keeps all.
  std::vector<SegmentCost> segments = {};
  std::vector<SegmentAction> plan = {};
  std::int64_t micro_batch = 1;  // samples a rank and micro-step
  std::int64_t accumulate = 1;   // micro-steps a step
  double step_seconds = 0;       // of a micro-step that keeps all; 0: unknown

  std::int64_t staging_bytes = 0;  // other buffers for copies
  /// Part of activations and working set that the allocator wastes. 0 compares with live bytes.
  double waste = 0.15;
};

/// Bytes of one rank by what they are for, predicted or measured.
struct MemoryParts {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t masters = 0;
  std::int64_t states = 0;
  std::int64_t buckets = 0;
  std::int64_t gathered = 0;
  std::int64_t activations = 0;
  std::int64_t working = 0;
  std::int64_t staging = 0;
  std::int64_t slack = 0;

  std::int64_t model_states() const { return parameters + gradients + masters + states; }
  std::int64_t total() const {
    return model_states() + buckets + gathered + activations + working + staging + slack;
  }
};

struct MemoryPrediction {
  MemoryParts rank;             // of the rank that needs most
  std::int64_t file_bytes = 0;  // of one rank, on its disk
  int ranks_per_host = 1;
  int ranks_per_node = 1;    // of the NUMA node that has most
  std::string peak_segment;  // in whose forward or backward the peak is; empty: unknown

  std::int64_t host_total() const { return rank.total() * ranks_per_host; }
  std::int64_t node_total() const { return rank.total() * ranks_per_node; }
  /// A table for people, in GB or MB.
  std::string Describe() const;
  /// The same with what was measured, and the error of each part in percent.
  std::string DescribeBeside(const MemoryParts& measured) const;
};

/// **Errors.** InvalidArgument: a number that is not allowed, or stage 3 with units whose size is not given;
/// OutOfRange: bytes that do not fit 63 bits.
StatusOr<MemoryPrediction> PredictMemory(const TrainingSetup& setup);

/// One thing to change, and what it would do.
struct Remedy {
  std::string what;              // "ZeRO stage 2 instead of 1"
  std::int64_t saves_bytes = 0;  // of the rank's total, > 0
  double step_factor = 1;        // of the time of a step, estimated
  std::string cost;              // in words: where the factor comes from, what else changes
  bool fits = false;             // the rank keeps to the budget with this alone
  TrainingSetup setup;           // with the change made
};

/// What would make the run take less, the cheapest first: those that suffice alone by their cost in
/// time, then the others by the bytes that they save. None: nothing helps, or `setup` is not valid.
std::vector<Remedy> SuggestRemedies(const TrainingSetup& setup, Bytes budget);

/// Changes that fit together: the fewest of the cheapest remedies, one after the other, until the
/// rank keeps to the budget.
/// **Errors.** ResourceExhausted: none do; the text has the least that is possible and the part that
/// sets it. InvalidArgument: as `PredictMemory`.
StatusOr<std::vector<Remedy>> RemediesUntil(const TrainingSetup& setup, Bytes budget);

enum class AttentionKind : std::uint8_t {
  kFused,         // scaled_dot_product_attention: scores are not stored
  kMaterialized,  // softmax of a matrix of scores
};

struct TransformerShape {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t sequence = 0;
  std::int64_t micro_batch = 1;
  std::int64_t vocabulary = 0;  // 0: the head is left out
  int element_bytes = 2;
  AttentionKind attention = AttentionKind::kFused;
};

/// Segments of a decoder by the formulas of Korthikanti et al. (arXiv:2205.05198): a layer holds
/// s b h (34 + 5 a s / h) bytes in 16 bits, without the second term where attention is fused, and
/// s b h element_bytes if it is recomputed. Seconds are parts of a micro-step that takes 1.
/// **Errors.** InvalidArgument: a number below 1, heads that do not divide the hidden size;
/// OutOfRange: bytes that do not fit 63 bits.
StatusOr<std::vector<SegmentCost>> TransformerSegments(const TransformerShape& shape);

}  // namespace ait::inline v0

#endif  // AIT_ACTIVATION_MEMORY_MODEL_H_
