// SPDX-License-Identifier: Apache-2.0
#include "ait/data/loader/io_experiment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

namespace ait::inline v0 {
namespace {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median of the distances from the median: a spread that single slow steps do not move.
double Spread(const std::vector<double>& values, double median) {
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - median));
  return Median(std::move(distances));
}

// Batches that are taken while none has to be waited for.
constexpr std::size_t kMostAhead = 512;

std::string Printf(const char* format, double value) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

}  // namespace

IoExperimentClock::IoExperimentClock(const IoExperimentOptions& options)
    : options_({.warmup_steps = std::max(options.warmup_steps, 0),
                .steps = std::max(options.steps, 4),
                .turns = std::max(options.turns, 1),
                .ahead = std::max(options.ahead, 0),
                .clock = options.clock}),
      turn_(options_.warmup_steps > 0 ? Turn::kWarmup : Turn::kStorage) {}

void IoExperimentClock::EndStep() {
  if (!begin_ || turn_ == Turn::kOver) return;
  const Duration took = options_.clock->now() - *begin_;
  const double seconds = std::chrono::duration<double>(took).count();
  begin_.reset();
  if (shortest_step_ == Duration::zero() || took < shortest_step_) shortest_step_ = took;
  ++step_;
  switch (turn_) {
    case Turn::kWarmup:
      if (step_ < options_.warmup_steps) return;
      turn_ = Turn::kStorage;
      break;
    case Turn::kStorage:
      if (step_ > options_.steps / 2) from_storage_.push_back(seconds);
      if (step_ < options_.steps) return;
      turn_ = Turn::kMemory;
      break;
    case Turn::kMemory:
      if (step_ > 1) from_memory_.push_back(seconds);
      if (static_cast<std::size_t>(step_) < kept_) return;
      turn_ = has_no_storage_ || ++turns_ >= options_.turns ? Turn::kOver : Turn::kStorage;
      has_waited_ = false;
      break;
    case Turn::kOver:
      return;
  }
  step_ = 0;
}

bool IoExperimentClock::Taken(std::size_t kept) {
  kept_ = kept;
  const auto steps = static_cast<std::size_t>(options_.steps);
  if (options_.ahead > 0) return kept < std::max(steps, static_cast<std::size_t>(options_.ahead));
  // What was read ahead comes at once.
  const Duration threshold =
      std::max<Duration>(shortest_step_ / 50, std::chrono::microseconds(100));
  has_waited_ = has_waited_ || options_.clock->now() - taken_at_ > threshold;
  if (kept < steps) return true;
  is_free_ = is_free_ || (!has_waited_ && kept >= kMostAhead);
  return !has_waited_ && !is_free_;
}

void IoExperimentClock::EndStorage(std::size_t kept) {
  has_no_storage_ = true;
  kept_ = kept;
  step_ = 0;
  turn_ = kept > 0 ? Turn::kMemory : Turn::kOver;
}

void IoExperimentClock::BeginStep() { begin_ = options_.clock->now(); }

IoReport IoExperimentClock::report() const {
  IoReport report{
      .step_s = Median(from_storage_),
      .step_from_memory_s = Median(from_memory_),
      .steps = static_cast<std::int64_t>(std::min(from_storage_.size(), from_memory_.size()))};
  const double difference = report.step_s - report.step_from_memory_s;
  // Three standard errors of a median of n values (Kendall and Stuart: 1.2533 σ/√n, and σ is about
  // 1.4826 times the spread).
  const auto error = [](const std::vector<double>& values, double median) {
    return values.empty() ? 0
                          : 1.2533 * 1.4826 * Spread(values, median) /
                                std::sqrt(static_cast<double>(values.size()));
  };
  const double noise = 3 * std::hypot(error(from_storage_, report.step_s),
                                      error(from_memory_, report.step_from_memory_s));
  report.is_significant = report.steps > 0 && difference > noise;
  if (report.is_significant) {
    report.speedup = report.step_s / report.step_from_memory_s;
    report.data_share = difference / report.step_s;
  }
  return report;
}

IoFacts FactsOf(const LoaderStatistics& statistics) {
  IoFacts facts;
  const Duration busy = statistics.read + statistics.transform + statistics.collate;
  if (busy > Duration::zero()) {
    const auto part = [&](Duration stage) {
      return std::chrono::duration<double>(stage) / std::chrono::duration<double>(busy);
    };
    facts.in_storage = part(statistics.read);
    facts.in_transforms = part(statistics.transform);
    facts.in_collation = part(statistics.collate);
  }
  const std::int64_t cached = statistics.cache.hits + statistics.cache.misses;
  if (cached > 0) {
    facts.cache_hits = static_cast<double>(statistics.cache.hits) / static_cast<double>(cached);
  }
  return facts;
}

std::vector<std::string> Advise(const IoReport& report, const IoFacts& facts) {
  std::vector<std::string> advice;
  if (!report.is_significant || report.data_share < 0.005) return advice;
  const double decode = facts.in_transforms.value_or(0) + facts.in_collation.value_or(0);
  const double storage = facts.in_storage.value_or(0);
  const bool decoding_dominates = decode > storage;
  const auto add_threads = [&] {
    if (!facts.threads || !facts.cpus) {
      advice.emplace_back("use more loader threads if the machine has idle CPUs");
    } else if (*facts.threads < *facts.cpus) {
      advice.push_back(StrCat("use more loader threads: ", *facts.threads, " of ", *facts.cpus,
                              " CPUs read and decode"));
    }
  };
  if (decoding_dominates) {
    add_threads();
    advice.emplace_back(
        "decode less: decode JPEG at a fraction of its size or only the region that is kept "
        "(docs/transforms.md), or store images at the size of training (ait convert)");
    return advice;
  }
  if (facts.is_one_file_a_sample.value_or(false)) {
    advice.emplace_back(
        "pack the files into shards (ait pack): one open and seek a sample is gone");
  }
  if (facts.is_remote.value_or(false)) {
    if (facts.cache_hits.value_or(0) < 0.9) {
      advice.emplace_back("stage the data to a local disk before the run (ait stage)");
      advice.emplace_back("or cache it on the host, so that later epochs are local (TieredCache)");
    }
  } else if (!facts.is_one_file_a_sample.value_or(false) &&
             facts.bytes_per_read.value_or(0) < (1 << 20)) {
    advice.emplace_back(
        "read larger pieces: shuffle blocks and then within a few of them (docs/resuming.md), so "
        "that "
        "neighbours are read together");
  }
  add_threads();
  advice.emplace_back("measure the storage itself: ait bench io PATH");
  return advice;
}

std::string ToText(const IoReport& report, const IoFacts& facts) {
  if (report.steps == 0) return "the data ended before the experiment did: nothing was measured";
  std::string text =
      StrCat("a step takes ", Printf("%.2f", report.step_s * 1e3),
             " ms with data from storage and ", Printf("%.2f", report.step_from_memory_s * 1e3),
             " ms with data from memory (medians of ", report.steps, " steps)");
  if (!report.is_significant) {
    return StrCat(text, ": no difference beyond the noise, the data does not hold the run up");
  }
  text += StrCat(": with free data the run would be ", Printf("%.3f", report.speedup),
                 " times as fast");
  const std::vector<std::string> advice = Advise(report, facts);
  if (advice.empty()) return StrCat(text, ", not worth a change");
  text += "; what to do:";
  for (const std::string& line : advice) text += StrCat("\n  - ", line);
  return text;
}

}  // namespace ait::inline v0
