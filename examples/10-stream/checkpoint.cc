// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ait/base/durable_file.h"
#include "ait/checkpoint/optimizer_state.h"
#include "ait/comm/communicator.h"

namespace {

using nlohmann::json;

std::string ManifestIn(const std::string& folder) { return folder + "/checkpoint.json"; }

// What all ranks got, on all ranks, in the order of the run.
ait::StatusOr<std::vector<Delivered>> OfAllRanks(ait::Communicator& all,
                                                 const std::vector<Delivered>& mine) {
  std::vector<std::int64_t> numbers;  // two for each sample
  for (const auto& [place, id] : mine) numbers.insert(numbers.end(), {place, id});
  std::vector<std::int64_t> count = {static_cast<std::int64_t>(numbers.size())};
  std::vector<std::int64_t> counts(static_cast<std::size_t>(all.size().value()));
  AIT_RETURN_IF_ERROR(all.AllGather(ait::View(count), ait::View(counts)).Wait());
  std::vector<std::int64_t> gathered(
      static_cast<std::size_t>(std::reduce(counts.begin(), counts.end())));
  AIT_RETURN_IF_ERROR(all.AllGather(ait::View(numbers), ait::View(gathered), counts).Wait());
  std::vector<Delivered> delivered;
  for (std::size_t i = 0; i < gathered.size(); i += 2) {
    delivered.push_back({gathered[i], gathered[i + 1]});
  }
  std::ranges::sort(delivered, {}, &Delivered::place);
  return delivered;
}

}  // namespace

ait::StatusOr<std::optional<Checkpoint>> FindCheckpoint(const std::string& folder) {
  std::ifstream file(ManifestIn(folder));
  if (!file) return std::nullopt;
  try {
    const json manifest = json::parse(file);
    Checkpoint found{.weights = manifest.at("weights"),
                     .optimizer = manifest.at("optimizer"),
                     .samples = manifest.at("samples")};
    AIT_ASSIGN_OR_RETURN(found.trainer,
                         ait::TrainerStateFromText(manifest.at("trainer").get<std::string>()));
    AIT_ASSIGN_OR_RETURN(found.data, ait::DatasetStateFromJson(manifest.at("data").dump()));
    return found;
  } catch (const json::exception& error) {
    return ait::DataLossError(ManifestIn(folder), " is no checkpoint: ", error.what());
  }
}

ait::Status LoadCheckpoint(const std::string& folder, const Checkpoint& checkpoint,
                           ait::DataParallel& engine, const ait::Optimizer& optimizer,
                           ait::Trainer& trainer) {
  AIT_RETURN_IF_ERROR(trainer.Load(folder + "/" + checkpoint.weights));
  AIT_RETURN_IF_ERROR(
      ait::LoadOptimizer(folder + "/" + checkpoint.optimizer, engine, optimizer).status());
  return trainer.set_state(checkpoint.trainer);
}

ait::Status SaveCheckpoint(const std::string& folder, ait::DataParallel& engine,
                           const ait::Optimizer& optimizer, ait::Trainer& trainer,
                           const ait::DatasetState& data, const std::vector<Delivered>& delivered) {
  ait::Communicator& all = *engine.communicator();
  const std::string step = std::to_string(trainer.step());
  const Checkpoint next{.weights = "weights-" + step + ".safetensors",
                        .optimizer = "optimizer-" + step + ".safetensors",
                        .samples = "samples-" + step + ".txt"};
  AIT_RETURN_IF_ERROR(trainer.Save(folder + "/" + next.weights));
  AIT_RETURN_IF_ERROR(ait::SaveOptimizer(folder + "/" + next.optimizer, engine, optimizer));
  AIT_ASSIGN_OR_RETURN(const std::vector<Delivered> samples, OfAllRanks(all, delivered));
  if (all.rank() != ait::Rank(0)) return ait::OkStatus();

  std::string ids;
  for (const Delivered& sample : samples) ids += std::to_string(sample.id) + "\n";
  AIT_RETURN_IF_ERROR(ait::WriteFileDurably(folder + "/" + next.samples, ids));
  const json manifest = {{"weights", next.weights},
                         {"optimizer", next.optimizer},
                         {"samples", next.samples},
                         {"trainer", ToText(trainer.state())},
                         {"data", json::parse(ToJson(data))}};
  AIT_RETURN_IF_ERROR(ait::WriteFileDurably(ManifestIn(folder), manifest.dump(2) + "\n"));

  // Now nobody needs the one before, nor what a killed run left behind.
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string name = file.path().filename();
    const bool is_state = name.starts_with("weights-") || name.starts_with("optimizer-");
    std::error_code ignored;
    if (is_state && name != next.weights && name != next.optimizer) {
      std::filesystem::remove(file.path(), ignored);
    }
  }
  return ait::OkStatus();
}
