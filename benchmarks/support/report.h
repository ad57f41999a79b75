// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BENCHMARKS_SUPPORT_REPORT_H_
#define AIT_BENCHMARKS_SUPPORT_REPORT_H_

// What every benchmark of ait shares: its two options, its table and its JSON.
//
//   int main(int argc, char** argv) {
//     Report report(argc, argv);                       // [--json FILE] [--peers PYTHON]
//     [NAME=VALUE…] report.AddTime("1t/update/torch-fused", {.ms = 31.0, .baseline = "torch fused",
//     .baseline_ms = 34.0}); return report.Finish();
//   }
//
// A row is one object of the JSON list: case, value, unit, baseline, baseline_value, ratio (above
// 1: better than the baseline) and, where a physical limit is known, limit_ratio (1: at the limit).

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ait::benchmarks {

/// Middle value; the mean of the two middle ones of an even number. `values` is not empty.
inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// A duration against a baseline's: less is better.
struct TimeRow {
  double ms;
  std::string baseline;
  double baseline_ms;
  std::optional<double> limit_ms = std::nullopt;
};

/// What something adds to a step: the median over rounds of the step with it minus the step without it, taken
/// in the same round, against the same of a baseline.
struct OverheadRow {
  std::vector<double> with_ms;
  std::vector<double> without_ms;
  std::string baseline;
  std::vector<double> baseline_with_ms;
  std::vector<double> baseline_without_ms;
};

/// A rate against a baseline's: more is better.
struct RateRow {
  double value;
  std::string unit;
  std::string baseline;
  double baseline_value;
  std::optional<double> limit = std::nullopt;
};

class Report {
 public:
  Report(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (word == "--json" && i + 1 < argc) {
        json_path_ = argv[++i];
      } else if (word == "--peers" && i + 1 < argc) {
        peers_python_ = argv[++i];
      } else if (const auto equals = word.find('='); equals != std::string::npos) {
        settings_[word.substr(0, equals)] = word.substr(equals + 1);
      } else {
        std::fprintf(stderr,
                     "unknown word %s; usage: [--json FILE] [--peers PYTHON] [NAME=VALUE…]\n",
                     word.c_str());
        std::exit(2);
      }
    }
  }

  /// The Python that has the peers; empty unless asked for by --peers.
  const std::string& peers_python() const { return peers_python_; }

  /// The value of NAME=VALUE on the command line.
  std::string Setting(const std::string& name, std::string fallback) const {
    const auto found = settings_.find(name);
    return found == settings_.end() ? fallback : found->second;
  }

  void AddTime(std::string_view name, const TimeRow& row) {
    Add(name, row.ms, "ms", row.baseline, row.baseline_ms, row.baseline_ms / row.ms,
        row.limit_ms ? std::optional(*row.limit_ms / row.ms) : std::nullopt);
  }

  /// The ratio is that of the two overheads. Where the smaller one is within the noise (less than 1 % of the
  /// step), a ratio of it means nothing: the row then has the ratio of the steps, and says so.
  void AddOverhead(std::string_view name, const OverheadRow& row) {
    const double ours = MedianDifference(row.with_ms, row.without_ms);
    const double theirs = MedianDifference(row.baseline_with_ms, row.baseline_without_ms);
    const double step = Median(row.with_ms), noise = 0.01 * step;
    const bool measurable = ours > noise && theirs > noise;
    Add(name, ours, "ms", row.baseline, theirs,
        measurable ? theirs / ours
                   : (Median(row.baseline_without_ms) + theirs) / (Median(row.without_ms) + ours),
        std::nullopt);
    if (!measurable) {
      rows_.back()["note"] =
          "an overhead is below 1 % of the step; the ratio is that of the whole steps";
      std::printf(
          "  (an overhead is below 1 %% of the step of %.1f ms; the ratio is that of the steps)\n",
          step);
    }
  }

  /// A number that is no ratio of two alike; `ratio` is how it compares with what is asked.
  void AddValue(std::string_view name, double value, std::string_view unit,
                std::string_view baseline, double baseline_value, double ratio) {
    Add(name, value, unit, baseline, baseline_value, ratio, std::nullopt);
  }

  /// Adds a field to the last row.
  void Note(const std::string& field, nlohmann::json value) {
    rows_.back()[field] = std::move(value);
  }

  void AddRate(std::string_view name, const RateRow& row) {
    Add(name, row.value, row.unit, row.baseline, row.baseline_value, row.value / row.baseline_value,
        row.limit ? std::optional(row.value / *row.limit) : std::nullopt);
  }

  /// Writes the JSON; returns the exit code of the program. Rows of an earlier file that this run
  /// did not measure (peers that were not asked for) are kept.
  int Finish() {
    if (json_path_.empty()) return 0;
    nlohmann::json all = rows_;
    if (std::ifstream file(json_path_); file) {
      const auto old = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
      if (old.is_array()) {
        for (const auto& row : old) {
          const bool measured = std::any_of(rows_.begin(), rows_.end(), [&](const auto& r) {
            return r["case"] == row.value("case", "");
          });
          if (!measured) all.push_back(row);
        }
      }
    }
    std::ofstream file(json_path_);
    file << all.dump(1) << '\n';
    if (file.flush()) return 0;
    std::fprintf(stderr, "cannot write %s\n", json_path_.c_str());
    return 1;
  }

 private:
  static double MedianDifference(const std::vector<double>& with,
                                 const std::vector<double>& without) {
    std::vector<double> differences;
    for (std::size_t i = 0; i < std::min(with.size(), without.size()); ++i) {
      differences.push_back(with[i] - without[i]);
    }
    return Median(std::move(differences));
  }

  void Add(std::string_view name, double value, std::string_view unit, std::string_view baseline,
           double baseline_value, double ratio, std::optional<double> limit_ratio) {
    std::printf("%-40s %12.4g %-8s %s %.4g  ratio %.3f", std::string(name).c_str(), value,
                std::string(unit).c_str(), std::string(baseline).c_str(), baseline_value, ratio);
    if (limit_ratio) std::printf("  of the limit %.2f", *limit_ratio);
    std::printf("\n");
    std::fflush(stdout);
    nlohmann::json row = {{"case", name},
                          {"value", value},
                          {"unit", unit},
                          {"baseline", baseline},
                          {"baseline_value", baseline_value},
                          {"ratio", ratio}};
    if (limit_ratio) row["limit_ratio"] = *limit_ratio;
    row["run"] = run_;
    rows_.push_back(std::move(row));
  }

  std::string json_path_;
  std::string peers_python_;
  std::map<std::string, std::string> settings_;
  std::vector<nlohmann::json> rows_;
  const std::time_t run_ = std::time(nullptr);  // tells rows of one run from kept ones
};

}  // namespace ait::benchmarks

#endif  // AIT_BENCHMARKS_SUPPORT_REPORT_H_
