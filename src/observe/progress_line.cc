// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

namespace ait::inline v0 {
namespace {

constexpr std::string_view kUnknown = "unknown";
constexpr std::string_view kEraseToEnd = "\x1b[K";

std::string Printf(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string OrUnknown(const char* format, const std::optional<double>& value) {
  return value ? Printf(format, *value) : std::string(kUnknown);
}

/// 1234567 as "1,234,567".
std::string WithCommas(double value) {
  if (!std::isfinite(value)) return Printf("%g", value);
  std::string digits = Printf("%.0f", value);
  const int first = digits.front() == '-' ? 1 : 0;
  for (int i = static_cast<int>(digits.size()) - 3; i > first; i -= 3)
    digits.insert(static_cast<std::size_t>(i), 1, ',');
  return digits;
}

/// "m:ss", or "h:mm:ss" from one hour on.
std::string ClockText(Duration duration) {
  const auto seconds =
      std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(duration).count());
  std::array<char, 64> text{};
  const long long h = seconds / 3600, m = seconds / 60 % 60, s = seconds % 60;
  if (h > 0) {
    std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", h, m, s);
  } else {
    std::snprintf(text.data(), text.size(), "%lld:%02lld", m, s);
  }
  return text.data();
}

std::string MemoryText(const std::optional<Bytes>& bytes) {
  if (!bytes) return std::string(kUnknown);
  const auto value = static_cast<double>(bytes->value());
  if (value < 0x1p30) return Printf("%.0f MiB", value / 0x1p20);
  return Printf("%.1f GiB", value / 0x1p30);
}

std::string StepText(const StepMetrics& metrics) {
  if (!metrics.total_steps) return StrCat("step ", metrics.step);
  return StrCat("step ", metrics.step, "/", *metrics.total_steps);
}

struct Field {
  int importance;  // 0 is shown first
  std::string text;
};

std::vector<Field> Fields(const StepMetrics& metrics) {
  std::optional<double> milliseconds;
  if (metrics.step_time)
    milliseconds = std::chrono::duration<double, std::milli>(*metrics.step_time).count();
  std::optional<double> percent;
  if (metrics.exposed_communication) percent = *metrics.exposed_communication * 100;
  const std::string rate =
      metrics.tokens_per_second ? WithCommas(*metrics.tokens_per_second) : std::string(kUnknown);
  std::vector<Field> fields = {
      {0, StepText(metrics)},
      {1, StrCat("loss ", OrUnknown("%.4f", metrics.loss))},
      {6, StrCat("lr ", OrUnknown("%.2e", metrics.learning_rate))},
      {7, StrCat("norm ", OrUnknown("%.3g", metrics.gradient_norm))},
      {3, StrCat(rate, " tokens/s")},
      {5, StrCat(OrUnknown("%.1f", milliseconds), " ms/step")},
      {8, StrCat("comm ", OrUnknown("%.1f", percent), percent ? "%" : "")},
      {9, StrCat("mem ", MemoryText(metrics.host_memory))},
      {11,
       StrCat("elapsed ", metrics.elapsed ? ClockText(*metrics.elapsed) : std::string(kUnknown))},
  };
  // These are known or not for the whole run: "unknown" would never change.
  if (metrics.epoch)
    fields.insert(fields.begin() + 1, {10, StrCat("epoch ", Printf("%.2f", *metrics.epoch))});
  if (metrics.data_wait) {
    fields.push_back({8, StrCat("data ", Printf("%.1f", *metrics.data_wait * 100), "%")});
  }
  if (metrics.remaining) fields.push_back({4, StrCat("left ", ClockText(*metrics.remaining))});
  if (metrics.skipped_steps > 0) fields.push_back({2, StrCat("skipped ", metrics.skipped_steps)});
  return fields;
}

void WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a progress line is not worth an error
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

std::string FormatProgress(const StepMetrics& metrics, int columns) {
  constexpr std::string_view kGap = "  ";
  const std::vector<Field> fields = Fields(metrics);
  std::vector<std::size_t> order(fields.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return fields[a].importance < fields[b].importance;
  });

  const std::size_t limit = columns > 0 ? static_cast<std::size_t>(columns) : std::string::npos;
  std::vector<char> shown(fields.size(), 0);
  std::size_t used = 0;
  for (std::size_t i : order) {
    const std::size_t more = fields[i].text.size() + (used > 0 ? kGap.size() : 0);
    if (fields[i].importance > 1 && used + more > limit) break;
    shown[i] = 1;
    used += more;
  }

  std::string line;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (shown[i] == 0) continue;
    if (!line.empty()) line += kGap;
    line += fields[i].text;
  }
  if (line.size() > limit) line.resize(limit);
  return line;
}

void ProgressLine::Update(const StepMetrics& metrics) {
  if (!options_.write) return;
  const Duration interval = options_.interval.value_or(
      options_.style == ProgressStyle::kPlain ? Duration(std::chrono::seconds(5))
                                              : Duration(std::chrono::milliseconds(100)));
  if (last_shown_ && options_.clock->now() - *last_shown_ < interval) {
    pending_ = metrics;
  } else {
    Show(metrics);
  }
}

void ProgressLine::Show(const StepMetrics& metrics) {
  if (options_.style == ProgressStyle::kPlain) {
    options_.write(FormatProgress(metrics) + "\n");
  } else {
    // The last column stays free: writing into it makes some terminals wrap.
    const int columns = options_.columns ? options_.columns() : 0;
    options_.write(
        StrCat("\r", FormatProgress(metrics, columns > 1 ? columns - 1 : columns), kEraseToEnd));
    on_screen_ = true;
  }
  last_shown_ = options_.clock->now();
  pending_.reset();
}

void ProgressLine::Clear() {
  if (!on_screen_) return;
  options_.write(StrCat("\r", kEraseToEnd));
  on_screen_ = false;
  last_shown_.reset();
}

void ProgressLine::Finish() {
  if (!options_.write) return;
  if (pending_) Show(StepMetrics(*pending_));
  if (on_screen_) options_.write("\n");
  on_screen_ = false;
}

ProgressOptions ProgressTo(int file_descriptor) {
  ProgressOptions options;
  options.write = [file_descriptor](std::string_view text) { WriteAll(file_descriptor, text); };
  if (::isatty(file_descriptor) == 1) {
    options.style = ProgressStyle::kRedrawn;
    options.columns = [file_descriptor] {
      winsize size{};
      return ::ioctl(file_descriptor, TIOCGWINSZ, &size) == 0 ? static_cast<int>(size.ws_col) : 0;
    };
  }
  return options;
}

}  // namespace ait::inline v0
