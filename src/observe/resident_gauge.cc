// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

#include "observe/memory_text_internal.h"
#include "observe/resident_gauge_internal.h"

namespace ait::inline v0::internal {
namespace {

int OpenIn(const std::string& proc, const char* name, int mode) {
  return ::open((proc + "/self/" + name).c_str(), mode | O_CLOEXEC);
}

/// The beginning of the file, which the kernel makes anew for each read at 0.
template <std::size_t kSize>
std::string_view ReadAgain(int file, std::array<char, kSize>& text) {
  if (file < 0) return {};
  const ssize_t count = ::pread(file, text.data(), text.size(), 0);
  return count > 0 ? std::string_view(text.data(), static_cast<std::size_t>(count))
                   : std::string_view();
}

std::int64_t LargestByUsage() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::int64_t>(usage.ru_maxrss) : 0;
}

}  // namespace

ResidentGauge::ResidentGauge(std::string proc)
    : proc_(std::move(proc)),
      page_bytes_(static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE))),
      statm_(OpenIn(proc_, "statm", O_RDONLY)),
      largest_(LargestByUsage()) {}

ResidentGauge::~ResidentGauge() {
  for (const int file : {statm_, status_, clear_refs_}) {
    if (file >= 0) ::close(file);
  }
}

Status ResidentGauge::UseHighWaterMark() {
  clear_refs_ = OpenIn(proc_, "clear_refs", O_WRONLY);
  status_ = clear_refs_ < 0 ? -1 : OpenIn(proc_, "status", O_RDONLY);
  Status status =
      status_ < 0 ? ErrnoError(errno, "cannot open ", proc_, "/self/clear_refs") : Reset();
  if (status.ok() && !Peak())
    status = NotFoundError(proc_, "/self/status has no VmHWM: peaks are those of the marks");
  if (!status.ok() && status_ >= 0) ::close(std::exchange(status_, -1));
  return status;
}

Status ResidentGauge::Reset() {
  if (::pwrite(clear_refs_, "5", 1, 0) == 1) return OkStatus();
  return ErrnoError(errno, "cannot set back the high-water mark by ", proc_, "/self/clear_refs");
}

std::optional<Bytes> ResidentGauge::Peak() {
  if (status_ >= 0) {
    std::array<char, 4096> buffer;
    const std::string_view text = ReadAgain(status_, buffer);
    const std::size_t begin = text.find("VmHWM:");
    if (begin == std::string_view::npos) return std::nullopt;
    return KibibytesOf(text.substr(begin, text.find('\n', begin) - begin), "VmHWM:");
  }
  const std::int64_t largest = LargestByUsage();
  if (largest <= largest_) return std::nullopt;
  largest_ = largest;
  return KiB(largest);
}

MemoryUse ResidentGauge::Read() {
  std::array<char, 128> buffer;
  const std::string_view text = ReadAgain(statm_, buffer);
  std::int64_t pages = 0;
  const std::size_t space = text.find(' ');  // "size resident shared …", in pages
  if (space == std::string_view::npos) return {};
  const auto [end, error] =
      std::from_chars(text.data() + space + 1, text.data() + text.size(), pages);
  if (error != std::errc()) return {};
  MemoryUse use{.now = Bytes(pages * page_bytes_), .peak = Peak()};
  if (use.peak) use.peak = std::max(*use.peak, *use.now);
  if (status_ >= 0) Reset().IgnoreError();  // it could be set back before
  return use;
}

}  // namespace ait::inline v0::internal
