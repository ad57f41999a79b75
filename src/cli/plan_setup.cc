// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_setup.h"

#include <array>
#include <charconv>
#include <utility>

#include "ait/optim/precision.h"
#include "ait/parallel/flat_layout.h"
#include "ait/parallel/memory_setup.h"
#include "cli/program.h"

namespace ait::cli {
namespace {

constexpr int kAssumedLayers = 32;
constexpr std::int64_t kMostCount = 1'000'000;
constexpr std::int64_t kMostRanks = 16'384;

struct Shape {
  std::int64_t layers = 0, hidden = 0, vocabulary = 0, sequence = 0;
};

StatusOr<Precision> ParsePrecision(const std::string& name) {
  if (name == "fp16-pure") {
    return Precision{.parameters = DType::kFloat16,
                     .masters = Masters::kNone,
                     .gradients = DType::kFloat16,
                     .reduction = DType::kFloat16};
  }
  StatusOr<Precision> precision = PrecisionNamed(name);
  if (precision.ok()) return precision;
  return InvalidArgumentError("option --precision: ", Message(precision.status()),
                              ", and fp16-pure");
}

// "2", "0..3".
StatusOr<std::vector<int>> ParseStages(const std::string& text) {
  const auto digit = [&](std::size_t i) { return text[i] >= '0' && text[i] <= '3'; };
  if (text.size() == 1 && digit(0)) return std::vector<int>{text[0] - '0'};
  std::vector<int> stages;
  if (text.size() == 4 && digit(0) && text.substr(1, 2) == ".." && digit(3)) {
    for (int stage = text[0] - '0'; stage <= text[3] - '0'; ++stage) stages.push_back(stage);
  }
  if (!stages.empty()) return stages;
  return InvalidArgumentError("option --zero cannot be '", text,
                              "': give a stage from 0 to 3, or several: 0..3");
}

// A GPT's tensors, one unit a layer.
std::vector<ParameterInfo> TensorsOf(const Shape& shape, DType dtype) {
  std::vector<ParameterInfo> tensors;
  const auto add = [&](std::string name, std::vector<std::int64_t> sizes, int unit) {
    ParameterInfo& tensor = tensors.emplace_back();
    tensor.name = std::move(name);
    tensor.dtype = dtype;
    tensor.sizes = std::move(sizes);
    tensor.unit = unit;
  };
  const std::int64_t h = shape.hidden;
  if (shape.vocabulary > 0) add("embedding.weight", {shape.vocabulary, h}, -1);
  if (shape.sequence > 0) add("position.weight", {shape.sequence, h}, -1);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = StrCat("layers.", layer, ".");
    const auto unit = static_cast<int>(layer);
    const auto linear = [&](const char* name, std::int64_t out, std::int64_t in) {
      add(StrCat(prefix, name, ".weight"), {out, in}, unit);
      add(StrCat(prefix, name, ".bias"), {out}, unit);
    };
    for (const char* norm : {"norm1", "norm2"}) {
      add(StrCat(prefix, norm, ".weight"), {h}, unit);
      add(StrCat(prefix, norm, ".bias"), {h}, unit);
    }
    linear("qkv", 3 * h, h);
    linear("proj", h, h);
    linear("up", 4 * h, h);
    linear("down", h, 4 * h);
  }
  add("norm.weight", {h}, -1);
  add("norm.bias", {h}, -1);
  if (shape.vocabulary > 0) add("head.weight", {shape.vocabulary, h}, -1);
  return tensors;
}

class Reader {
 public:
  explicit Reader(const cxxopts::ParseResult& parsed) : parsed_(parsed) {}

  StatusOr<PlanQuestion> Read() && {
    AIT_RETURN_IF_ERROR(ReadRun());
    AIT_RETURN_IF_ERROR(ReadParameters());
    AIT_RETURN_IF_ERROR(ReadActivations());
    return std::move(question_);
  }

 private:
  bool has(const char* option) const { return parsed_.count(option) != 0; }
  std::string text(const char* option) const { return parsed_[option].as<std::string>(); }

  StatusOr<std::int64_t> Count(const char* option, std::int64_t least = 1,
                               std::int64_t most = kMostCount) const {
    return ParseNumber<std::int64_t>(StrCat("--", option), text(option), least, most,
                                     StrCat("a whole number from ", least, " to ", most));
  }

  Status ReadRun() {
    TrainingSetup& setup = question_.setup;
    question_.precision = text("precision");
    AIT_ASSIGN_OR_RETURN(precision_, ParsePrecision(question_.precision));
    setup.bytes = BytesOf(precision_);
    AIT_ASSIGN_OR_RETURN(setup.optimizer, OptimizerNamed(text("optimizer")));
    const std::string states = text("states");
    if (states != "fp32" && states != "8bit") {
      return InvalidArgumentError("option --states cannot be '", states, "': give fp32 or 8bit");
    }
    if (states == "8bit") setup.state = StateFormat::kBlockwise8bit;
    AIT_ASSIGN_OR_RETURN(const std::int64_t ranks, Count("ranks", 1, kMostRanks));
    setup.ranks = static_cast<int>(ranks);
    if (has("ranks-per-host")) {
      AIT_ASSIGN_OR_RETURN(const std::int64_t on_host, Count("ranks-per-host"));
      if (on_host > ranks) {
        return InvalidArgumentError("option --ranks-per-host is ", on_host, ", more than the ",
                                    ranks, " of --ranks");
      }
      setup.ranks_per_host = static_cast<int>(on_host);
    }
    AIT_ASSIGN_OR_RETURN(const std::int64_t nodes, Count("nodes-per-host", 1, 1024));
    setup.nodes_per_host = static_cast<int>(nodes);
    AIT_ASSIGN_OR_RETURN(setup.micro_batch, Count("micro-batch"));
    AIT_ASSIGN_OR_RETURN(setup.accumulate, Count("accumulate"));
    if (has("offload")) setup.offload = StateOffload{.directory = std::string(1, '.')};
    const std::string fallback = ranks > 1 ? "0..3" : "0";
    AIT_ASSIGN_OR_RETURN(question_.stages, ParseStages(has("zero") ? text("zero") : fallback));
    if (has("budget")) {
      AIT_ASSIGN_OR_RETURN(const std::int64_t budget, ParseSize("--budget", text("budget")));
      question_.budget = Bytes(budget);
    }
    return OkStatus();
  }

  Status ReadParameters() {
    ParameterCounts& counts = question_.setup.parameters;
    if (has("layers") != has("hidden")) {
      return InvalidArgumentError("options --layers and --hidden go together");
    }
    AIT_ASSIGN_OR_RETURN(shape_.vocabulary, Count("vocabulary", 0));
    if (has("sequence")) {
      AIT_ASSIGN_OR_RETURN(shape_.sequence, Count("sequence"));
    }
    if (has("layers")) {
      AIT_ASSIGN_OR_RETURN(shape_.layers, Count("layers"));
      AIT_ASSIGN_OR_RETURN(shape_.hidden, Count("hidden"));
      if (shape_.layers > 10'000) {
        return InvalidArgumentError("option --layers is ", shape_.layers, "; at most 10000");
      }
      AIT_ASSIGN_OR_RETURN(const FlatLayout layout,
                           FlatLayout::Create(TensorsOf(shape_, precision_.parameters),
                                              {.world_size = WorldSize(question_.setup.ranks)}));
      counts = CountsOf(layout);
      if (!has("params")) return OkStatus();
    }
    if (!has("params")) {
      return InvalidArgumentError(
          "say how large the model is: --params 7B, or its shape by --layers and --hidden");
    }
    AIT_ASSIGN_OR_RETURN(const std::int64_t elements, ParseSize("--params", text("params")));
    const std::int64_t unit = counts.largest_unit;
    counts = {.elements = elements, .largest_unit = unit};
    if (unit == 0) {
      counts.largest_unit = (elements + kAssumedLayers - 1) / kAssumedLayers;
      if (question_.stages.back() == 3 && question_.setup.ranks > 1) {
        question_.notes.push_back(StrCat("stage 3 gathers units: assumed to be ", kAssumedLayers,
                                         " equal ones; give the shape by --layers and --hidden"));
      }
    }
    return OkStatus();
  }

  Status ReadActivations() {
    const std::string attention = text("attention");
    if (attention != "fused" && attention != "materialized") {
      return InvalidArgumentError("option --attention cannot be '", attention,
                                  "': give fused or materialized");
    }
    const std::string recompute = text("recompute");
    if (recompute != "none" && recompute != "all") {
      return InvalidArgumentError("option --recompute cannot be '", recompute,
                                  "': give none or all");
    }
    if (shape_.layers == 0 || shape_.sequence == 0) {
      question_.notes.push_back("without activations: give --layers, --hidden and --sequence");
      return OkStatus();
    }
    TrainingSetup& setup = question_.setup;
    AIT_ASSIGN_OR_RETURN(const std::int64_t heads, Count("heads"));
    AIT_ASSIGN_OR_RETURN(
        setup.segments,
        TransformerSegments({.layers = shape_.layers,
                             .hidden = shape_.hidden,
                             .heads = heads,
                             .sequence = shape_.sequence,
                             .micro_batch = setup.micro_batch,
                             .vocabulary = shape_.vocabulary,
                             .element_bytes = setup.bytes.parameters,
                             .attention = attention == "fused" ? AttentionKind::kFused
                                                               : AttentionKind::kMaterialized}));
    setup.step_seconds = 1;
    if (recompute == "none") return OkStatus();
    for (const SegmentCost& segment : setup.segments) {
      setup.plan.push_back(segment.recompute ? SegmentAction::kRecompute : SegmentAction::kKeep);
    }
    return OkStatus();
  }

  const cxxopts::ParseResult& parsed_;
  PlanQuestion question_;
  Precision precision_;
  Shape shape_;
};

}  // namespace

StatusOr<std::int64_t> ParseSize(std::string_view option, const std::string& text) {
  struct Suffix {
    std::string_view text;
    double factor;
  };
  constexpr std::array kSuffixes = {
      Suffix{"", 1},         Suffix{"k", 1e3},      Suffix{"K", 1e3},      Suffix{"M", 1e6},
      Suffix{"G", 1e9},      Suffix{"B", 1e9},      Suffix{"T", 1e12},     Suffix{"kB", 1e3},
      Suffix{"KB", 1e3},     Suffix{"MB", 1e6},     Suffix{"GB", 1e9},     Suffix{"TB", 1e12},
      Suffix{"KiB", 0x1p10}, Suffix{"MiB", 0x1p20}, Suffix{"GiB", 0x1p30}, Suffix{"TiB", 0x1p40}};
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::string_view rest(stop, static_cast<std::size_t>(end - stop));
  for (const Suffix& suffix : kSuffixes) {
    if (error != std::errc() || rest != suffix.text) continue;
    const double size = number * suffix.factor;
    if (size >= 1 && size <= 1e18) return static_cast<std::int64_t>(size);
  }
  return InvalidArgumentError("option ", option, " cannot be '", text,
                              "': give a size such as 7B, 350M, 80GB or 512MiB");
}

StatusOr<PlanQuestion> ReadQuestion(const cxxopts::ParseResult& parsed) {
  return Reader(parsed).Read();
}

}  // namespace ait::cli
