// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/memory_bench_data.h"

namespace ait::cli {
namespace {

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

std::string Rate(const BandwidthResult& result) {
  return Format("%.1f (%.1f)", result.best / 1e9, result.median / 1e9);
}

nlohmann::ordered_json ToJson(const BandwidthResult& result) {
  return {{"best_bytes_per_s", result.best}, {"median_bytes_per_s", result.median}};
}

}  // namespace

std::string MemoryBenchHeader(const MemoryBenchOptions& options) {
  return Format(
             "# arrays of %.0f MiB, %s; GB/s: best and, in brackets, median of %d; each byte read "
             "or written counts once\n",
             static_cast<double>(options.array_bytes.value()) / (1 << 20),
             std::string(Name(options.simd)).c_str(), options.repetitions) +
         Format("%-10s %-18s %-18s %-18s\n", "# threads", "read", "copy", "triad");
}

std::string MemoryBenchLine(const BandwidthRow& row) {
  return Format("%-10d %-18s %-18s %-18s\n", row.threads, Rate(row.read).c_str(),
                Rate(row.copy).c_str(), Rate(row.triad).c_str());
}

std::string MemoryBenchMatrix(const std::vector<MatrixCell>& cells) {
  std::string text =
      "# between nodes: GB/s read by all cores of a node / ns of one load; * see below\n";
  std::map<int, std::map<int, const MatrixCell*>> rows;
  std::map<int, bool> columns;
  for (const MatrixCell& cell : cells) {
    rows[cell.cpu_node][cell.memory_node] = &cell;
    columns[cell.memory_node] = true;
  }
  text += Format("%-14s", "# CPUs of");
  for (const auto& [node, known] : columns) {
    text += Format(" %-18s", Format("memory of %d", node).c_str());
  }
  text += "\n";
  for (const auto& [node, row] : rows) {
    text += Format("%-14s", Format("node %d (x%d)", node, row.begin()->second->threads).c_str());
    for (const auto& [memory, cell] : row) {
      const bool verified = cell->placement == PlacementVerdict::kVerified;
      text += Format(
          " %-18s",
          Format("%.1f / %.1f%s", cell->read / 1e9, cell->latency, verified ? "" : " *").c_str());
    }
    text += "\n";
  }
  for (const MatrixCell& cell : cells) {
    if (cell.placement == PlacementVerdict::kVerified) continue;
    text += StrCat("# * memory of node ", cell.memory_node, " for node ", cell.cpu_node, ": ",
                   ToString(cell.placement), ", ", cell.reason, "\n");
  }
  return text;
}

std::string MemoryBenchJson(const MemoryBenchOptions& options, const MemoryBenchResult& result) {
  nlohmann::ordered_json json = {{"array_bytes", options.array_bytes.value()},
                                 {"repetitions", options.repetitions},
                                 {"simd", Name(options.simd)},
                                 {"threads", nlohmann::ordered_json::array()},
                                 {"matrix", nlohmann::ordered_json::array()}};
  for (const BandwidthRow& row : result.rows) {
    json["threads"].push_back({{"threads", row.threads},
                               {"read", ToJson(row.read)},
                               {"copy", ToJson(row.copy)},
                               {"triad", ToJson(row.triad)}});
  }
  for (const MatrixCell& cell : result.cells) {
    json["matrix"].push_back({{"cpu_node", cell.cpu_node},
                              {"memory_node", cell.memory_node},
                              {"threads", cell.threads},
                              {"read_bytes_per_s", cell.read},
                              {"latency_ns", cell.latency},
                              {"placement", ToString(cell.placement)},
                              {"reason", cell.reason}});
  }
  return json.dump(1) + "\n";
}

}  // namespace ait::cli
