// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BENCHMARKS_SUPPORT_MEMORY_WATCH_H_
#define AIT_BENCHMARKS_SUPPORT_MEMORY_WATCH_H_

// How much memory a rank takes, by two counts.
//
// *Resident*, VmRSS, counts a page of shared memory in every process that has touched it. Ranks that
// write into each other's buffers touch each other's pages: added up over the ranks, those count
// several times, although they exist once. *Own* counts the pages of shared memory with the process
// that has allocated them: RssAnon, RssFile, and the blocks of the memfds that are open here (a rank
// closes those of its peers once they are mapped). Over all ranks that adds up to what there is.
//
//   ResidentWatch watch;              // a thread that looks every few milliseconds
//   …
//   double mib = watch.Stop().own() - before.own();

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

namespace ait::benchmarks {

/// The number of a line such as "VmRSS:  1234 kB", in MiB; 0 if there is none.
inline double ProcMiB(const std::string& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key)) return std::stod(line.substr(key.size())) / 1024;
  }
  return 0;
}

/// What the memfds take that this process has open.
inline double MemfdMiB() {
  double mib = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // a file that was closed meanwhile
    const std::string name = std::filesystem::read_symlink(entry.path(), gone).string();
    struct stat facts{};
    if (!name.starts_with("/memfd:") || ::stat(entry.path().c_str(), &facts) != 0) continue;
    mib += static_cast<double>(facts.st_blocks) * 512 / (1 << 20);
  }
  return mib;
}

struct ResidentMiB {
  double anonymous = 0;  // heap and stacks
  double file = 0;       // code and data of libraries, as far as they were used
  double shared = 0;     // memfds
  double resident = 0;   // VmRSS; as a peak, VmHWM

  double own() const { return anonymous + file + shared; }

  static ResidentMiB Now() {
    return {.anonymous = ProcMiB("/proc/self/status", "RssAnon:"),
            .file = ProcMiB("/proc/self/status", "RssFile:"),
            .shared = MemfdMiB(),
            .resident = ProcMiB("/proc/self/status", "VmRSS:")};
  }
};

/// The moment with most memory of its own since it was made, as far as samples tell; and `resident`,
/// the kernel's maximum.
class ResidentWatch {
 public:
  ResidentWatch() {
    std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM begins anew
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        Look();
        std::this_thread::sleep_for(std::chrono::milliseconds(4));
      }
    });
  }

  ResidentMiB Stop() {
    thread_ = std::jthread();
    Look();
    peak_.resident = ProcMiB("/proc/self/status", "VmHWM:");
    return peak_;
  }

 private:
  void Look() {
    const ResidentMiB now = ResidentMiB::Now();
    if (now.own() > peak_.own()) peak_ = now;
  }

  ResidentMiB peak_;
  std::jthread thread_;
};

/// Counts what libtorch's allocator for host memory hands out to this thread and to backward: while
/// a step runs, its activations and temporary gradients.
class TensorMemory {
 public:
  /// Calls `function` and returns the most bytes that were live at once, beyond those before.
  template <typename Function>
  static std::int64_t PeakOf(const Function& function) {
    return Count(function)->peak;
  }
  /// The same, of the bytes that are live when it returns.
  template <typename Function>
  static std::int64_t LiveAfter(const Function& function) {
    return Count(function)->live;
  }

 private:
  struct Counter;

  template <typename Function>
  static std::shared_ptr<Counter> Count(const Function& function) {
    const auto counter = std::make_shared<Counter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
    function();
    const std::lock_guard lock(counter->mutex);
    return counter;
  }

  struct Counter final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t,
                           c10::Device) override {
      const std::lock_guard lock(mutex);
      live += bytes;
      peak = std::max(peak, live);
    }
    bool memoryProfilingEnabled() const override { return true; }

    std::mutex mutex;
    std::int64_t live = 0, peak = 0;
  };
};

}  // namespace ait::benchmarks

#endif  // AIT_BENCHMARKS_SUPPORT_MEMORY_WATCH_H_
