// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/io_bench_data.h"

namespace ait::cli {
namespace {

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

std::string Size(std::int64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return StrCat(bytes >> 20, "M");
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return StrCat(bytes >> 10, "K");
  return StrCat(bytes);
}

}  // namespace

std::string IoBenchHeader() {
  return Format("%-12s %-9s %-20s %8s %6s %10s %12s %6s %8s\n", "# pattern", "cache", "engine",
                "block", "depth", "MB/s", "reads/s", "CPU", "x plain");
}

std::string IoBenchLine(const IoBenchRow& row) {
  const double seconds = row.seconds > 0 ? row.seconds : 1e-9;
  return Format("%-12s %-9s %-20s %8s %6d %10.1f %12.0f %5.0f%% %8s\n", row.pattern.c_str(),
                row.cache.c_str(), row.engine.c_str(), Size(row.block_bytes).c_str(), row.depth,
                static_cast<double>(row.bytes) / seconds / 1e6,
                static_cast<double>(row.reads) / seconds, 100 * row.cpu_seconds / seconds,
                row.ratio ? Format("%.2f", *row.ratio).c_str() : "-");
}

std::string IoBenchJson(const std::string& url, const std::vector<std::string>& about,
                        const std::vector<IoBenchRow>& rows) {
  nlohmann::ordered_json json = {
      {"url", url}, {"about", about}, {"rows", nlohmann::ordered_json::array()}};
  for (const IoBenchRow& row : rows) {
    nlohmann::ordered_json line = {{"pattern", row.pattern},
                                   {"cache", row.cache},
                                   {"engine", row.engine},
                                   {"block_bytes", row.block_bytes},
                                   {"depth", row.depth},
                                   {"bytes", row.bytes},
                                   {"reads", row.reads},
                                   {"seconds", row.seconds},
                                   {"cpu_seconds", row.cpu_seconds}};
    if (row.seconds > 0) {
      line["bytes_per_s"] = static_cast<double>(row.bytes) / row.seconds;
      line["reads_per_s"] = static_cast<double>(row.reads) / row.seconds;
    }
    if (row.ratio) line["ratio_to_plain"] = *row.ratio;
    json["rows"].push_back(std::move(line));
  }
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace ait::cli
