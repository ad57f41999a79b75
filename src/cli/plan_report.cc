// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "activation/memory_parts_internal.h"

namespace ait::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kShownRemedies = 5;

std::string Text(const char* format, auto... values) {
  char text[160];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

double Gigabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

std::string Lines(const PlanAnswer& answer, const char* name, auto bytes_of) {
  std::string line = Text("  %-14s", name);
  bool is_zero = true;
  for (const PlanAnswer::Stage& stage : answer.stages) {
    const std::int64_t bytes = bytes_of(stage.prediction);
    is_zero = is_zero && bytes == 0;
    line += Text("%10.2f", Gigabytes(bytes));
  }
  return is_zero ? std::string() : line + "\n";
}

std::string Remedies(const PlanAnswer& answer) {
  std::string text;
  const auto add = [&](const Remedy& remedy) {
    text += Text("  %9.2f GB  %5.2fx  ", Gigabytes(remedy.saves_bytes), remedy.step_factor);
    text += StrCat(remedy.what, " (", remedy.cost, ")", remedy.fits ? "; fits" : "", "\n");
  };
  if (!answer.remedies.empty()) {
    text += "what would help: saves a rank, time of a step, the change\n";
    for (std::size_t i = 0; i < std::min(kShownRemedies, answer.remedies.size()); ++i) {
      add(answer.remedies[i]);
    }
  }
  if (answer.together.size() > 1) {
    text += "together they fit, one after the other\n";
    for (const Remedy& remedy : answer.together) add(remedy);
  }
  if (!answer.no_remedy.empty()) text += StrCat(answer.no_remedy, "\n");
  return text;
}

ordered_json JsonOf(const std::vector<Remedy>& remedies) {
  ordered_json list = ordered_json::array();
  for (const Remedy& remedy : remedies) {
    list.push_back({{"what", remedy.what},
                    {"saves_bytes", remedy.saves_bytes},
                    {"step_factor", remedy.step_factor},
                    {"cost", remedy.cost},
                    {"fits", remedy.fits}});
  }
  return list;
}

}  // namespace

bool PlanAnswer::fits() const {
  return std::ranges::any_of(stages, [](const Stage& stage) { return stage.fits; });
}

StatusOr<PlanAnswer> Answer(const PlanQuestion& question) {
  PlanAnswer answer;
  TrainingSetup setup = question.setup;
  for (const int stage : question.stages) {
    setup.zero_stage = stage;
    AIT_ASSIGN_OR_RETURN(MemoryPrediction prediction, PredictMemory(setup));
    const bool fits = !question.budget || prediction.rank.total() <= question.budget->value();
    answer.stages.push_back({.zero = stage, .prediction = std::move(prediction), .fits = fits});
  }
  if (answer.fits()) return answer;
  answer.remedies = SuggestRemedies(setup, *question.budget);
  StatusOr<std::vector<Remedy>> together = RemediesUntil(setup, *question.budget);
  if (together.ok()) {
    answer.together = *std::move(together);
  } else {
    answer.no_remedy = Message(together.status());
  }
  return answer;
}

std::string ToText(const PlanQuestion& question, const PlanAnswer& answer) {
  const TrainingSetup& setup = question.setup;
  std::string text =
      Text("%.3g B parameters, %s (%d + %d + %d bytes an element), %s, %d rank%s",
           static_cast<double>(setup.parameters.elements) / 1e9, question.precision.c_str(),
           setup.bytes.parameters, setup.bytes.gradients, setup.bytes.masters,
           std::string(Name(setup.optimizer)).c_str(), setup.ranks, setup.ranks == 1 ? "" : "s");
  text += setup.segments.empty() ? "\n" : StrCat(", micro-batch ", setup.micro_batch, "\n");
  text += "  GB a rank     ";
  for (const PlanAnswer::Stage& stage : answer.stages) text += Text("    zero %d", stage.zero);
  text += "\n";
  for (const internal::MemoryPart& part : internal::kMemoryParts) {
    text += Lines(answer, part.key, [&](const MemoryPrediction& p) { return p.rank.*part.bytes; });
  }
  text += Lines(answer, "model states", [](const auto& p) { return p.rank.model_states(); });
  text += Lines(answer, "total", [](const auto& p) { return p.rank.total(); });
  if (setup.nodes_per_host > 1) {
    text += Lines(answer, "a node", [](const auto& p) { return p.node_total(); });
  }
  if (answer.stages.front().prediction.ranks_per_host > 1) {
    text += Lines(answer, "a host", [](const auto& p) { return p.host_total(); });
  }
  text += Lines(answer, "in a file", [](const auto& p) { return p.file_bytes; });
  if (question.budget) {
    text += Text("  of %-11.2f", Gigabytes(question.budget->value()));
    for (const PlanAnswer::Stage& stage : answer.stages) {
      text += Text("%10s", stage.fits ? "fits" : "too much");
    }
    text += "\n";
  }
  for (const std::string& note : question.notes) text += StrCat("  note: ", note, "\n");
  return text + Remedies(answer);
}

std::string ToJson(const PlanQuestion& question, const PlanAnswer& answer) {
  const TrainingSetup& setup = question.setup;
  ordered_json json = {{"parameters", setup.parameters.elements}, {"precision", question.precision},
                       {"optimizer", Name(setup.optimizer)},      {"ranks", setup.ranks},
                       {"micro_batch", setup.micro_batch},        {"notes", question.notes}};
  if (question.budget) json["budget_bytes"] = question.budget->value();
  for (const PlanAnswer::Stage& stage : answer.stages) {
    const MemoryPrediction& prediction = stage.prediction;
    ordered_json row = {{"zero", stage.zero}};
    for (const internal::MemoryPart& part : internal::kMemoryParts) {
      row[StrCat(part.key, "_bytes")] = prediction.rank.*part.bytes;
    }
    row["model_states_bytes"] = prediction.rank.model_states();
    row["total_bytes"] = prediction.rank.total();
    row["node_bytes"] = prediction.node_total();
    row["host_bytes"] = prediction.host_total();
    row["file_bytes"] = prediction.file_bytes;
    if (question.budget) row["fits"] = stage.fits;
    json["stages"].push_back(std::move(row));
  }
  if (!answer.fits()) {
    json["remedies"] = JsonOf(answer.remedies);
    json["together"] = JsonOf(answer.together);
    if (!answer.no_remedy.empty()) json["no_remedy"] = answer.no_remedy;
  }
  return json.dump(1) + "\n";
}

}  // namespace ait::cli
