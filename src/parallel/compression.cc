// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/compression.h"

#include <charconv>
#include <cmath>

namespace ait::inline v0 {

double CompressionCounters::ratio() const {
  if (sent_bytes == 0) return 0;
  return static_cast<double>(exact_sent_bytes) / static_cast<double>(sent_bytes);
}

double CompressionCounters::relative_error() const {
  return squares == 0 ? 0 : std::sqrt(error_squares / squares);
}

CompressionCounters& CompressionCounters::operator+=(const CompressionCounters& other) {
  collectives += other.collectives;
  handed_bytes += other.handed_bytes;
  sent_bytes += other.sent_bytes;
  exact_sent_bytes += other.exact_sent_bytes;
  squares += other.squares;
  error_squares += other.error_squares;
  return *this;
}

StatusOr<std::string> GradientCompression::Load(std::span<const CompressionState> states) {
  for (const CompressionState& state : states) {
    if (state.method.empty() && state.entries.empty()) continue;
    return InvalidArgumentError("a state of compression by \"", state.method, "\" was given, but ",
                                Describe(), " has none");
  }
  return std::string();
}

StatusOr<std::shared_ptr<GradientCompression>> CompressionNamed(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto wrong = [&] {
    return InvalidArgumentError("no compression \"", text,
                                "\"; there are none, bf16, int8[:BLOCK], topk[:RATIO], "
                                "powersgd[:RANK]");
  };
  double number = 0;
  const bool has_number = colon != std::string_view::npos;
  if (has_number) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool is_whole = number == std::floor(number) && std::abs(number) < 1e6;
    if (error != std::errc() || end != digits.data() + digits.size()) return wrong();
    if (name != "topk" && !is_whole) return wrong();
  }
  if (name == "none" && !has_number) return std::shared_ptr<GradientCompression>();
  if (name == "bf16" && !has_number) return Bf16Compression();
  if (name == "int8") {
    Int8CompressionOptions options;
    if (has_number) options.block = static_cast<std::int64_t>(number);
    return Int8Compression(std::move(options));
  }
  if (name == "topk") {
    TopKCompressionOptions options;
    if (has_number) options.ratio = number;
    return TopKCompression(std::move(options));
  }
  if (name == "powersgd") {
    PowerSgdCompressionOptions options;
    if (has_number) options.rank = static_cast<int>(number);
    return PowerSgdCompression(std::move(options));
  }
  return wrong();
}

}  // namespace ait::inline v0
