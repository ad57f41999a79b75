// SPDX-License-Identifier: Apache-2.0
#include "data/storage/http_date_internal.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

namespace ait::inline v0::internal {
namespace {

constexpr std::chrono::seconds kLongestWait{60};
constexpr std::chrono::seconds kStrongAfter{60};

constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

// Digits alone; −1 if there are others.
int Number(std::string_view digits) {
  int value = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return -1;
    value = 10 * value + (c - '0');
  }
  return value;
}

}  // namespace

std::optional<std::chrono::sys_seconds> ParseHttpDate(std::string_view text) {
  constexpr std::string_view kForm = "Www, DD Mmm YYYY HH:MM:SS GMT";
  if (text.size() != kForm.size() || !text.ends_with(" GMT") || text[3] != ',') return {};
  for (std::size_t i = 3; i < kForm.size(); ++i) {
    const bool is_mark = kForm[i] == ' ' || kForm[i] == ':' || kForm[i] == ',';
    if (is_mark && text[i] != kForm[i]) return {};
  }
  const auto month = std::find(kMonths.begin(), kMonths.end(), text.substr(8, 3));
  const int day = Number(text.substr(5, 2)), year = Number(text.substr(12, 4)),
            hour = Number(text.substr(17, 2)), minute = Number(text.substr(20, 2)),
            second = Number(text.substr(23, 2));
  if (month == kMonths.end() || day < 0 || year < 0 || hour < 0 || hour > 23 || minute < 0 ||
      minute > 59 || second < 0 || second > 60) {
    return {};
  }
  const std::chrono::year_month_day date{
      std::chrono::year(year),
      std::chrono::month(static_cast<unsigned>(month - kMonths.begin()) + 1),
      std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return {};
  return std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
         std::chrono::seconds(second);
}

bool IsStrongLastModified(std::string_view last_modified, std::string_view date) {
  const auto changed = ParseHttpDate(last_modified), now = ParseHttpDate(date);
  return changed && now && *now - *changed >= kStrongAfter;
}

std::chrono::milliseconds ParseRetryAfter(std::string_view text, std::string_view date) {
  using std::chrono::seconds;
  if (const auto until = ParseHttpDate(text)) {
    const auto ours = std::chrono::floor<seconds>(std::chrono::system_clock::now());
    return std::clamp(*until - ParseHttpDate(date).value_or(ours), seconds(0), kLongestWait);
  }
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size()) return seconds(0);
  if (error == std::errc::result_out_of_range) return kLongestWait;
  return error == std::errc() ? std::min(seconds(value), kLongestWait) : seconds(0);
}

}  // namespace ait::inline v0::internal
