// SPDX-License-Identifier: Apache-2.0
#include "ait/data/dataset_state.h"

#include "data/json_internal.h"

namespace ait::inline v0 {
namespace {

constexpr std::int64_t kVersion = 1;

}  // namespace

std::string ToJson(const DatasetState& state) {
  const nlohmann::json json = {{"version", kVersion},
                               {"plan", internal::HexDigits(state.plan_digest, 16)},
                               {"epoch", state.epoch},
                               {"delivered", state.delivered}};
  return json.dump();
}

StatusOr<DatasetState> DatasetStateFromJson(std::string_view text) {
  const auto json =
      nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgumentError("dataset state: not a JSON object");
  internal::JsonReader reader;
  const std::int64_t version = reader.Integer(json, "version");
  const DatasetState state = {.plan_digest = reader.Hex(json, "plan", 16),
                              .epoch = reader.Integer(json, "epoch"),
                              .delivered = reader.Integer(json, "delivered")};
  if (!reader.complaint().empty()) {
    return InvalidArgumentError("dataset state: ", reader.complaint());
  }
  if (version != kVersion || json.size() != 4) {
    return InvalidArgumentError("dataset state: version ", version, " with ", json.size(),
                                " fields is not known, only version ", kVersion, " with 4");
  }
  return state;
}

}  // namespace ait::inline v0
