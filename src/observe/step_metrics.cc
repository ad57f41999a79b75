// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/step_metrics.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace ait::inline v0 {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json Number(std::int64_t value) { return value; }

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Number(*value) : Json();
}

template <typename Period>
std::optional<double> In(const std::optional<Duration>& duration) {
  if (!duration) return std::nullopt;
  return std::chrono::duration<double, Period>(*duration).count();
}

/// Reads fields of one object; remembers the first that has the wrong type.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  std::optional<double> Real(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr) return std::nullopt;
    if (value->is_number()) return value->get<double>();
    if (*value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (*value == "inf") return std::numeric_limits<double>::infinity();
    if (*value == "-inf") return -std::numeric_limits<double>::infinity();
    return Wrong(key, "a number");
  }

  std::optional<std::int64_t> Integer(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr) return std::nullopt;
    if (value->is_number_integer()) return value->get<std::int64_t>();
    Wrong(key, "an integer");
    return std::nullopt;
  }

  template <typename Period>
  std::optional<Duration> Time(const char* key) {
    const std::optional<double> count = Real(key);
    // Beyond a century the clock's integer would overflow; such a duration is nonsense.
    if (!count || !(std::abs(*count) * Period::num / Period::den < 3e9)) return std::nullopt;
    return std::chrono::round<Duration>(std::chrono::duration<double, Period>(*count));
  }

  std::vector<std::pair<std::string, std::int64_t>> Counters(const char* key) {
    std::vector<std::pair<std::string, std::int64_t>> counters;
    const Json* value = Find(key);
    if (value == nullptr) return counters;
    if (!value->is_object()) {
      Wrong(key, "an object");
      return counters;
    }
    for (const auto& [name, count] : value->items()) {
      if (count.is_number_integer()) {
        counters.emplace_back(name, count.get<std::int64_t>());
      } else {
        Wrong(key, "an object of integers");
      }
    }
    return counters;
  }

  const Status& status() const { return status_; }

 private:
  const Json* Find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  std::nullopt_t Wrong(const char* key, const char* wanted) {
    if (status_.ok()) status_ = DataLossError("field \"", key, "\" is not ", wanted);
    return std::nullopt;
  }

  const Json& object_;
  Status status_;
};

}  // namespace

std::string ToJson(const StepMetrics& metrics) {
  Json counters = Json::object();
  for (const auto& [name, value] : metrics.counters) counters[name] = value;
  std::optional<std::int64_t> host_memory;
  if (metrics.host_memory) host_memory = metrics.host_memory->value();
  const Json object{
      {"step", metrics.step},
      {"total_steps", OrNull(metrics.total_steps)},
      {"epoch", OrNull(metrics.epoch)},
      {"loss", OrNull(metrics.loss)},
      {"learning_rate", OrNull(metrics.learning_rate)},
      {"gradient_norm", OrNull(metrics.gradient_norm)},
      {"tokens_per_second", OrNull(metrics.tokens_per_second)},
      {"step_time_ms", OrNull(In<std::milli>(metrics.step_time))},
      {"exposed_communication", OrNull(metrics.exposed_communication)},
      {"data_wait", OrNull(metrics.data_wait)},
      {"host_memory_bytes", OrNull(host_memory)},
      {"elapsed_s", OrNull(In<std::ratio<1>>(metrics.elapsed))},
      {"remaining_s", OrNull(In<std::ratio<1>>(metrics.remaining))},
      {"skipped_steps", metrics.skipped_steps},
      {"loss_scale", OrNull(metrics.loss_scale)},
      {"counters", std::move(counters)},
  };
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

StatusOr<StepMetrics> StepMetricsFromJson(std::string_view line) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return DataLossError("not one JSON object");
  Reader reader(object);
  const std::optional<std::int64_t> step = reader.Integer("step");
  StepMetrics metrics;
  metrics.step = step.value_or(0);
  metrics.total_steps = reader.Integer("total_steps");
  metrics.epoch = reader.Real("epoch");
  metrics.loss = reader.Real("loss");
  metrics.learning_rate = reader.Real("learning_rate");
  metrics.gradient_norm = reader.Real("gradient_norm");
  metrics.tokens_per_second = reader.Real("tokens_per_second");
  metrics.step_time = reader.Time<std::milli>("step_time_ms");
  metrics.exposed_communication = reader.Real("exposed_communication");
  metrics.data_wait = reader.Real("data_wait");
  if (const auto bytes = reader.Integer("host_memory_bytes")) metrics.host_memory = Bytes(*bytes);
  metrics.elapsed = reader.Time<std::ratio<1>>("elapsed_s");
  metrics.remaining = reader.Time<std::ratio<1>>("remaining_s");
  metrics.skipped_steps = reader.Integer("skipped_steps").value_or(0);
  metrics.loss_scale = reader.Real("loss_scale");
  metrics.counters = reader.Counters("counters");
  AIT_RETURN_IF_ERROR(reader.status());
  if (!step) return DataLossError("field \"step\" is missing");
  return metrics;
}

}  // namespace ait::inline v0
