// SPDX-License-Identifier: Apache-2.0
#include "cli/comm_bench_table.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

namespace ait::cli {
namespace {

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

/// The words of nccl-tests for types and reductions.
std::string_view TypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float";
    case DType::kFloat64:
      return "double";
    case DType::kFloat16:
      return "half";
    default:
      return Name(dtype);
  }
}

std::string_view ReduceName(const std::optional<ReduceOp>& reduce) {
  if (!reduce) return "none";
  switch (*reduce) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAverage:
      return "avg";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kProduct:
      return "prod";
  }
  return "unknown";
}

/// Four digits, as nccl-tests has them: the column keeps its width over seven orders.
std::string Time(double us) {
  return us >= 10'000 ? Format("%7.0f", us) : us >= 100 ? Format("%7.1f", us) : Format("%7.2f", us);
}

std::string Columns(const std::optional<CommBenchTime>& time) {
  if (!time) return Format("  %7s  %6s  %6s %6s", "N/A", "N/A", "N/A", "N/A");
  return Format("  %s  %6.2f  %6.2f %6s", Time(time->us).c_str(), time->algbw, time->busbw,
                time->wrong ? std::to_string(*time->wrong).c_str() : "N/A");
}

nlohmann::json ToJson(const std::optional<CommBenchTime>& time) {
  if (!time) return nullptr;
  nlohmann::json json = {{"time_us", time->us}, {"algbw", time->algbw}, {"busbw", time->busbw},
                         {"p50_us", time->p50}, {"p99_us", time->p99},  {"max_us", time->max}};
  if (time->wrong) json["wrong"] = *time->wrong;
  return json;
}

struct Sums {
  std::int64_t wrong = 0;
  bool checked = false;
  double busbw = 0;
  int times = 0;
};

Sums SumsOf(const std::vector<CommBenchRow>& rows) {
  Sums sums;
  for (const CommBenchRow& row : rows) {
    for (const auto& time : {row.out_of_place, row.in_place}) {
      if (!time) continue;
      sums.wrong += time->wrong.value_or(0);
      sums.checked |= time->wrong.has_value();
      if (row.bytes == 0) continue;
      sums.busbw += time->busbw;
      ++sums.times;
    }
  }
  return sums;
}

}  // namespace

std::string CommBenchHeader(const CommBenchRun& run) {
  const CommBenchOptions& options = run.options;
  std::string text = Format(
      "# ranks %d minBytes %lld maxBytes %lld step: %g(factor) warmup iters: %d iters: %d "
      "validation: %d\n",
      run.ranks, static_cast<long long>(options.min_bytes),
      static_cast<long long>(options.max_bytes), options.factor, options.warmup, options.iterations,
      options.check ? 1 : 0);
  text += Format("# transport %s memory %s signatures %s\n#\n", run.transport.c_str(),
                 run.memory.c_str(), run.signatures ? "on" : "off");
  text += Format("# %-14s %44s  %36s\n", "", "", "out-of-place                       in-place");
  text += Format("# %-14s %12s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s  %s\n",
                 "collective", "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
                 "#wrong", "time", "algbw", "busbw", "#wrong", "p50/p99/max");
  text += Format("# %-14s %12s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s  %s\n",
                 "", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
                 "(GB/s)", "(GB/s)", "", "(us)");
  return text;
}

std::string CommBenchLine(const CommBenchRow& row) {
  const std::string type(TypeName(row.dtype)), reduce(ReduceName(row.reduce));
  const CommBenchTime& last = row.in_place ? *row.in_place : *row.out_of_place;
  return Format("  %-14s %12lld  %12lld  %8s  %6s  %6d",
                std::string(CommBenchName(row.kind)).c_str(), static_cast<long long>(row.bytes),
                static_cast<long long>(row.count), type.c_str(), reduce.c_str(),
                row.root.value_or(-1)) +
         Columns(row.out_of_place) + Columns(row.in_place) +
         Format("  %s/%s/%s\n", Time(last.p50).c_str(), Time(last.p99).c_str(),
                Time(last.max).c_str());
}

std::string CommBenchFooter(const std::vector<CommBenchRow>& rows) {
  const Sums sums = SumsOf(rows);
  std::string text;
  if (sums.checked) {
    text += Format("# Out of bounds values : %lld %s\n", static_cast<long long>(sums.wrong),
                   sums.wrong == 0 ? "OK" : "FAILED");
  }
  if (sums.times != 0) text += Format("# Avg bus bandwidth    : %g\n", sums.busbw / sums.times);
  return text;
}

std::int64_t CountWrong(const std::vector<CommBenchRow>& rows) { return SumsOf(rows).wrong; }

std::string CommBenchJson(const CommBenchRun& run, const std::vector<CommBenchRow>& rows) {
  const Sums sums = SumsOf(rows);
  nlohmann::json json = {{"transport", run.transport},
                         {"memory", run.memory},
                         {"ranks", run.ranks},
                         {"signatures", run.signatures},
                         {"iterations", run.options.iterations},
                         {"warmup", run.options.warmup},
                         {"rows", nlohmann::json::array()}};
  if (sums.checked) json["wrong"] = sums.wrong;
  if (sums.times != 0) json["average_busbw"] = sums.busbw / sums.times;
  for (const CommBenchRow& row : rows) {
    json["rows"].push_back({{"collective", CommBenchName(row.kind)},
                            {"bytes", row.bytes},
                            {"count", row.count},
                            {"type", Name(row.dtype)},
                            {"redop", ReduceName(row.reduce)},
                            {"root", row.root.value_or(-1)},
                            {"out_of_place", ToJson(row.out_of_place)},
                            {"in_place", ToJson(row.in_place)}});
  }
  return json.dump(1) + "\n";
}

}  // namespace ait::cli
