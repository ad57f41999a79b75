// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/memory_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "activation/byte_text_internal.h"
#include "activation/memory_model_internal.h"
#include "activation/memory_parts_internal.h"

namespace ait::inline v0 {
namespace {

constexpr std::int64_t kMostElements = 10'000'000'000'000;
constexpr int kMostRanks = 1 << 20;
constexpr int kMostNodes = 1024;
// Rows and columns of a matrix of 4096 x 4096, where the shapes are not known.
constexpr std::int64_t kElementsPerFactor = 2048;

constexpr std::array<std::string_view, 5> kOptimizers = {"adam", "lion", "sgd-momentum", "sgd",
                                                         "adafactor"};

std::int64_t Share(std::int64_t count, int ranks) { return (count + ranks - 1) / ranks; }
std::int64_t Or(std::int64_t given, std::int64_t derived) { return given > 0 ? given : derived; }

int MomentsOf(OptimizerKind kind) {
  constexpr std::array kMoments = {2, 1, 1, 0, 0};
  return kMoments[static_cast<std::size_t>(kind)];
}

bool ReducesEach(const TrainingSetup& setup) {
  return setup.gradients == KeptGradients::kByStage ? setup.zero_stage >= 2
                                                    : setup.gradients == KeptGradients::kReduced;
}

Status CheckCounts(const ParameterCounts& counts) {
  if (counts.elements < 1) {
    return InvalidArgumentError("parameters.elements is ", counts.elements,
                                "; give the number of trainable elements, at least 1");
  }
  for (const std::int64_t count :
       {counts.elements, counts.frozen, counts.flat, counts.whole, counts.owned,
        counts.owned_in_units, counts.buckets, counts.gathered, counts.largest_unit, counts.small,
        counts.owned_8bit, counts.factors}) {
    if (count < 0) return InvalidArgumentError("a parameter count is negative: ", count);
    if (count > kMostElements) {
      return OutOfRangeError("a parameter count is ", count, "; the arithmetic is for at most ",
                             kMostElements);
    }
  }
  return OkStatus();
}

Status CheckFits(std::string_view what, double bytes) {
  constexpr double kMost = 9e18;  // a little below 2^63, for sums of doubles are rounded
  if (bytes < kMost) return OkStatus();
  return OutOfRangeError(what, " would take ", bytes, " bytes; the arithmetic is for at most ",
                         kMost);
}

Status Check(const TrainingSetup& setup) {
  AIT_RETURN_IF_ERROR(CheckCounts(setup.parameters));
  for (const auto& [what, bytes] :
       {std::pair("parameters", setup.bytes.parameters),
        std::pair("gradients", setup.bytes.gradients), std::pair("masters", setup.bytes.masters)}) {
    if (bytes < 0 || bytes > 8) {
      return InvalidArgumentError("bytes.", what, " is ", bytes, "; an element has 0 to 8 bytes");
    }
  }
  if (setup.zero_stage < 0 || setup.zero_stage > 3) {
    return InvalidArgumentError("zero_stage is ", setup.zero_stage, "; allowed are 0 to 3");
  }
  if (setup.ranks < 1 || setup.ranks > kMostRanks || setup.ranks_per_host < 0 ||
      setup.ranks_per_host > kMostRanks) {
    return InvalidArgumentError("ranks is ", setup.ranks, " and ranks_per_host ",
                                setup.ranks_per_host, "; allowed are 1 to ", kMostRanks,
                                ", and 0 for all ranks on one host");
  }
  if (setup.nodes_per_host < 1 || setup.nodes_per_host > kMostNodes) {
    return InvalidArgumentError("nodes_per_host is ", setup.nodes_per_host, "; allowed are 1 to ",
                                kMostNodes);
  }
  const ParameterCounts& counts = setup.parameters;
  const bool has_units = counts.whole < Or(counts.flat, counts.elements);
  if (setup.zero_stage == 3 && setup.ranks > 1 && has_units && counts.gathered == 0 &&
      counts.largest_unit == 0) {
    return InvalidArgumentError(
        "with ZeRO stage 3 units are gathered: give the elements of the largest one in "
        "parameters.largest_unit, a layer for instance");
  }
  if (setup.prefetch < 0 || setup.prefetch > 8) {
    return InvalidArgumentError("prefetch is ", setup.prefetch, "; allowed are 0 to 8 units");
  }
  if (setup.bucket_cap.value() < 1) {
    return InvalidArgumentError("bucket_cap is ", setup.bucket_cap, "; it must be at least 1 byte");
  }
  if (setup.offload.enabled()) {
    AIT_RETURN_IF_ERROR(setup.offload.Validate());
    if (setup.optimizer == OptimizerKind::kAdafactor) {
      return InvalidArgumentError(
          "Adafactor needs whole parameters at once and keeps its state in memory; offload the "
          "states of Adam, Lion or SGD");
    }
  }
  if (setup.micro_batch < 1 || setup.accumulate < 1) {
    return InvalidArgumentError("micro_batch is ", setup.micro_batch, " and accumulate ",
                                setup.accumulate, "; both must be at least 1");
  }
  AIT_RETURN_IF_ERROR(internal::CheckSegments(setup.segments));
  if (!setup.plan.empty() && setup.plan.size() != setup.segments.size()) {
    return InvalidArgumentError("plan has ", setup.plan.size(), " actions for ",
                                setup.segments.size(), " segments; give one for each, or none");
  }
  for (std::size_t i = 0; i < setup.plan.size(); ++i) {
    if (setup.segments[i].allows(setup.plan[i])) continue;
    return InvalidArgumentError("the plan has ", Name(setup.plan[i]), " for segment ",
                                setup.segments[i].name, ", which has no cost for it");
  }
  if (!(setup.waste >= 0) || setup.waste > 10 || setup.staging_bytes < 0) {
    return InvalidArgumentError("waste is ", setup.waste, " and staging_bytes ",
                                setup.staging_bytes, "; allowed are 0 to 10, and at least 0");
  }
  return OkStatus();
}

std::int64_t StateBytes(const TrainingSetup& setup, std::int64_t elements) {
  const ParameterCounts& counts = setup.parameters;
  if (setup.optimizer == OptimizerKind::kAdafactor) {
    const std::int64_t factors =
        Or(counts.factors, Or(counts.elements / kElementsPerFactor, counts.elements));
    return 4 * (setup.zero_stage >= 1 ? Share(factors, setup.ranks) : factors);
  }
  const int moments = MomentsOf(setup.optimizer);
  if (setup.state == StateFormat::kFloat32) return 4 * moments * elements;
  if (setup.zero_stage >= 1 && counts.owned_8bit > 0) return moments * counts.owned_8bit;
  const std::int64_t small =
      setup.zero_stage >= 1 ? Share(counts.small, setup.ranks) : counts.small;
  const std::int64_t large = std::max<std::int64_t>(0, elements - small);
  return moments * (4 * small + large + large / 16);
}

// Everything but activations.
MemoryParts ModelParts(const TrainingSetup& setup, std::int64_t& file_bytes) {
  const ParameterCounts& counts = setup.parameters;
  const int ranks = setup.ranks;
  const std::int64_t flat = Or(counts.flat, counts.elements);
  const std::int64_t owned = Or(counts.owned, Share(flat, ranks));
  MemoryParts parts;

  if (setup.zero_stage == 3) {
    const std::int64_t in_units = flat - std::min(flat, counts.whole);
    const std::int64_t sharded = Or(counts.owned_in_units, Share(in_units, ranks));
    parts.parameters =
        (counts.whole + sharded + Share(counts.frozen, ranks)) * setup.bytes.parameters;
    const std::int64_t gathered =
        Or(counts.gathered, std::min(in_units, counts.largest_unit * (setup.prefetch + 1)));
    parts.gathered = gathered * setup.bytes.parameters;
  } else {
    parts.parameters = (flat + counts.frozen) * setup.bytes.parameters;
  }

  const bool reduces_each = ReducesEach(setup);
  const bool shards_gradients = reduces_each && setup.zero_stage >= 2;
  parts.gradients = (shards_gradients ? owned : flat) * setup.bytes.gradients;
  if (reduces_each && setup.bytes.gradients > 0) {
    const std::int64_t two =
        2 * std::max<std::int64_t>(1, setup.bucket_cap.value() / setup.bytes.gradients);
    parts.buckets = Or(counts.buckets, std::min(flat, two)) * setup.bytes.gradients;
  }

  const std::int64_t updated = setup.zero_stage >= 1 ? owned : flat;
  const std::int64_t masters = updated * setup.bytes.masters;
  const std::int64_t states = StateBytes(setup, updated);
  if (setup.offload.enabled()) {
    file_bytes = masters + states;
    parts.staging = std::min(file_bytes, setup.offload.chunk.value() * setup.offload.chunks);
  } else {
    parts.masters = masters;
    parts.states = states;
  }
  parts.staging += setup.staging_bytes;
  return parts;
}

struct Unit {
  const char* name;
  double bytes;
};

Unit UnitFor(std::int64_t bytes) {
  return bytes >= std::int64_t{10'000'000'000} ? Unit{"GB", 1e9} : Unit{"MB", 1e6};
}

std::string Row(const char* name, std::int64_t predicted, const Unit& unit,
                const std::int64_t* measured) {
  char line[128];
  if (measured == nullptr) {
    std::snprintf(line, sizeof(line), "  %-14s %12.2f\n", name,
                  static_cast<double>(predicted) / unit.bytes);
    return line;
  }
  char error[24] = "";
  if (*measured != 0) {
    std::snprintf(
        error, sizeof(error), "%+9.1f %%",
        100.0 * static_cast<double>(predicted - *measured) / static_cast<double>(*measured));
  }
  std::snprintf(line, sizeof(line), "  %-14s %12.2f %12.2f %s\n", name,
                static_cast<double>(predicted) / unit.bytes,
                static_cast<double>(*measured) / unit.bytes, error);
  return line;
}

std::string Table(const MemoryPrediction& prediction, const MemoryParts* measured) {
  const MemoryParts& rank = prediction.rank;
  const Unit unit = UnitFor(rank.total());
  std::string text = StrCat("  ", unit.name,
                            measured == nullptr ? "                predicted\n"
                                                : "                predicted     "
                                                  "measured       error\n");
  const auto add = [&](const char* name, std::int64_t bytes, std::int64_t other) {
    text += Row(name, bytes, unit, measured == nullptr ? nullptr : &other);
  };
  for (const internal::MemoryPart& part : internal::kMemoryParts) {
    const std::int64_t other = measured == nullptr ? 0 : measured->*part.bytes;
    if (rank.*part.bytes != 0 || other != 0) add(part.name, rank.*part.bytes, other);
  }
  add("model states", rank.model_states(), measured == nullptr ? 0 : measured->model_states());
  add("total", rank.total(), measured == nullptr ? 0 : measured->total());
  if (measured == nullptr && prediction.ranks_per_node < prediction.ranks_per_host) {
    text += Row(StrCat("node, ", prediction.ranks_per_node, "x").c_str(), prediction.node_total(),
                unit, nullptr);
  }
  if (measured == nullptr && prediction.ranks_per_host > 1) {
    text += Row(StrCat("host, ", prediction.ranks_per_host, "x").c_str(), prediction.host_total(),
                unit, nullptr);
  }
  if (prediction.file_bytes > 0) text += Row("in a file", prediction.file_bytes, unit, nullptr);
  if (!prediction.peak_segment.empty()) {
    text += StrCat("  the peak is in the forward or backward of ", prediction.peak_segment, "\n");
  }
  return text;
}

}  // namespace

std::string_view Name(OptimizerKind kind) { return kOptimizers[static_cast<std::size_t>(kind)]; }

StatusOr<OptimizerKind> OptimizerNamed(std::string_view name) {
  for (std::size_t i = 0; i < kOptimizers.size(); ++i) {
    if (name == kOptimizers[i]) return static_cast<OptimizerKind>(i);
  }
  return InvalidArgumentError("no optimizer \"", name,
                              "\"; there are adam, lion, sgd-momentum, sgd and adafactor");
}

std::string MemoryPrediction::Describe() const { return Table(*this, nullptr); }

std::string MemoryPrediction::DescribeBeside(const MemoryParts& measured) const {
  return Table(*this, &measured);
}

StatusOr<MemoryPrediction> PredictMemory(const TrainingSetup& setup) {
  AIT_RETURN_IF_ERROR(Check(setup));
  MemoryPrediction prediction;
  prediction.ranks_per_host = setup.ranks_per_host > 0 ? setup.ranks_per_host : setup.ranks;
  prediction.ranks_per_node =
      static_cast<int>(Share(prediction.ranks_per_host, setup.nodes_per_host));
  prediction.rank = ModelParts(setup, prediction.file_bytes);
  if (!setup.segments.empty()) {
    const SchedulePeak peak = PeakOf(setup.segments, setup.plan);
    prediction.rank.activations = peak.held_bytes;
    prediction.rank.working = peak.working_bytes;
    const double slack = static_cast<double>(peak.bytes) * setup.waste;
    AIT_RETURN_IF_ERROR(CheckFits("slack", slack));
    prediction.rank.slack = static_cast<std::int64_t>(slack);
    prediction.peak_segment = setup.segments[static_cast<std::size_t>(peak.segment)].name;
  }
  double host = 0;
  for (const internal::MemoryPart& part : internal::kMemoryParts)
    host += static_cast<double>(prediction.rank.*part.bytes);
  host *= prediction.ranks_per_host;
  AIT_RETURN_IF_ERROR(CheckFits("the ranks of a host", host));
  return prediction;
}

namespace internal {

std::string LargestPart(const MemoryParts& parts) {
  const internal::MemoryPart* largest = &internal::kMemoryParts.front();
  for (const internal::MemoryPart& part : internal::kMemoryParts) {
    if (parts.*part.bytes > parts.*largest->bytes) largest = &part;
  }
  return StrCat(largest->name, " (", ByteText(parts.*largest->bytes), ")");
}

}  // namespace internal

StatusOr<std::vector<SegmentCost>> TransformerSegments(const TransformerShape& shape) {
  for (const auto& [what, number] :
       {std::pair("layers", shape.layers), std::pair("hidden", shape.hidden),
        std::pair("heads", shape.heads), std::pair("sequence", shape.sequence),
        std::pair("micro_batch", shape.micro_batch)}) {
    if (number < 1 || number > 1'000'000) {
      return InvalidArgumentError(what, " is ", number, "; it must be 1 to 1000000");
    }
  }
  if (shape.hidden % shape.heads != 0) {
    return InvalidArgumentError("hidden size ", shape.hidden, " is not a multiple of ", shape.heads,
                                " heads");
  }
  if (shape.element_bytes < 1 || shape.element_bytes > 8 || shape.vocabulary < 0) {
    return InvalidArgumentError("element_bytes is ", shape.element_bytes, " and vocabulary ",
                                shape.vocabulary, "; allowed are 1 to 8, and at least 0");
  }
  const double e = shape.element_bytes;
  const double sb = static_cast<double>(shape.sequence) * static_cast<double>(shape.micro_batch);
  const double sbh = sb * static_cast<double>(shape.hidden);
  const double scores = static_cast<double>(shape.heads) * static_cast<double>(shape.sequence) * sb;
  // 34 = 16 elements of 2 bytes and two masks of a byte; 5 = 2 elements and a mask.
  double kept = sbh * (16 * e + 2);
  // Gradients of the two tensors of four times the hidden size.
  double working = sbh * 8 * e;
  if (shape.attention == AttentionKind::kMaterialized) {
    kept += scores * (2 * e + 1);
    working = std::max(working, scores * 2 * e);
  }
  // Twice, for a layer has an action that keeps and one that recomputes.
  AIT_RETURN_IF_ERROR(
      CheckFits("the activations of all layers",
                2 * static_cast<double>(shape.layers) * 2 * (kept + working + sbh * e)));
  AIT_RETURN_IF_ERROR(CheckFits(
      "the head", 2 * (sb * static_cast<double>(shape.vocabulary) * (e + 8) + sbh * 2 * e)));
  const auto bytes = [](double number) { return static_cast<std::int64_t>(number); };
  const double forward = 1.0 / 3;  // backward takes twice as long
  std::vector<SegmentCost> segments;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const ActionCost keep{.held_bytes = bytes(kept), .peak_bytes = bytes(kept + working)};
    segments.push_back(
        {.name = StrCat("layers.", layer),
         .keep = keep,
         .recompute = ActionCost{.held_bytes = bytes(sbh * e),
                                 .peak_bytes = bytes(kept + working + sbh * e),
                                 .seconds = forward / static_cast<double>(shape.layers)}});
  }
  if (shape.vocabulary > 0) {
    // Logits and, in fp32, their logarithms and gradients.
    const double logits = sb * static_cast<double>(shape.vocabulary);
    const double held = logits * (e + 4) + sbh * 2 * e;
    segments.push_back(
        {.name = "head",
         .keep = {.held_bytes = bytes(held), .peak_bytes = bytes(held + logits * 4)}});
  }
  return segments;
}

}  // namespace ait::inline v0
