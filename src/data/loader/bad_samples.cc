// SPDX-License-Identifier: Apache-2.0
#include "ait/data/loader/bad_samples.h"

#include <algorithm>

#include "data/json_internal.h"

namespace ait::inline v0 {

std::string ToJson(const BadSample& sample) {
  const nlohmann::json json = {{"attempt", sample.attempt},
                               {"code", sample.code},
                               {"epoch", sample.epoch},
                               {"id", sample.id},
                               {"key", sample.key},
                               {"offset", sample.offset_bytes},
                               {"position", sample.position},
                               {"rank", sample.rank.value()},
                               {"reason", sample.reason},
                               {"shard", sample.shard},
                               {"size", sample.size_bytes},
                               {"source", sample.source},
                               {"source_digest", internal::HexDigits(sample.source_digest, 16)}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

StatusOr<BadSample> BadSampleFromJson(std::string_view line) {
  const auto json =
      nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgumentError("bad sample: not a JSON object");
  internal::JsonReader reader;
  BadSample sample = {.source = reader.Text(json, "source"),
                      .source_digest = reader.Hex(json, "source_digest", 16),
                      .id = reader.Integer(json, "id"),
                      .key = reader.Text(json, "key"),
                      .shard = reader.Text(json, "shard"),
                      .offset_bytes = reader.Integer(json, "offset"),
                      .size_bytes = reader.Integer(json, "size"),
                      .code = reader.Text(json, "code"),
                      .reason = reader.Text(json, "reason"),
                      .epoch = reader.Integer(json, "epoch"),
                      .position = reader.Integer(json, "position"),
                      .attempt = reader.Integer(json, "attempt")};
  const std::int64_t rank = reader.Integer(json, "rank");
  if (!reader.complaint().empty()) return InvalidArgumentError("bad sample: ", reader.complaint());
  sample.rank = Rank(static_cast<int>(std::min<std::int64_t>(rank, 1 << 30)));
  return sample;
}

std::vector<SampleId> SamplesOf(const std::vector<BadSample>& list) {
  std::vector<SampleId> ids;
  ids.reserve(list.size());
  for (const BadSample& sample : list) ids.push_back({sample.source_digest, sample.id});
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

BadSampleBudget::BadSampleBudget(const BadSamplePolicy& policy)
    : max_total_(policy.max_bad_samples),
      max_per_shard_(policy.max_bad_per_shard),
      max_in_a_row_(policy.max_bad_in_a_row) {}

Status BadSampleBudget::CountBad(const BadSample& sample) {
  ++total_;
  ++in_a_row_;
  const std::int64_t of_shard = ++by_shard_[sample.shard];
  const auto exceeded = [&](std::int64_t count, std::int64_t most, std::string_view what,
                            std::string_view option) {
    return DataLossError("bad sample ", sample.id, " \"", sample.key, "\" of ", sample.shard,
                         " at byte ", sample.offset_bytes, ", epoch ", sample.epoch, ", rank ",
                         sample.rank.value(), ": ", sample.reason, " (", sample.code,
                         "); it is bad sample ", count, what, ", allowed are ", most,
                         "; mend the data, exclude the sample or raise ", option);
  };
  if (total_ > max_total_) return exceeded(total_, max_total_, " of this rank", "max_bad_samples");
  if (of_shard > max_per_shard_) {
    return exceeded(of_shard, max_per_shard_, " of its shard", "max_bad_per_shard");
  }
  if (in_a_row_ > max_in_a_row_) {
    return exceeded(in_a_row_, max_in_a_row_, " in a row", "max_bad_in_a_row");
  }
  return OkStatus();
}

}  // namespace ait::inline v0
