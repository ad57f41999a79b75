// SPDX-License-Identifier: Apache-2.0
// One AdamW step over 50.9 M fp32 parameters whose state (407 MB) is in a file of a local disk,
// against the disk: the time in which threads with pread and pwrite read as many bytes and write as
// many, at the same time, from and to a file beside it. And against the same step in memory.
//
//   bench_offload [directory=.] [rounds=12] [chunk_mib=4] [chunks=4] [--json FILE]
//
// The raw pass is run with three cuts (2, 4 and 8 threads, half of which read); the fastest of them
// is the baseline. All take turns, in another order in every round.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "ait/base/types.h"
#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/optim/adam.h"
#include "ait/optim/torch_executor.h"
#include "base/file_descriptor.h"
#include "support/report.h"

namespace {

using ait::benchmarks::Median;

constexpr std::int64_t kElements = 50'862'592;
constexpr std::int64_t kStateBytes = kElements * 8;
constexpr std::int64_t kRawPiece = 4 << 20;

void Check(const ait::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench offload: %s\n", status.ToString().c_str());
  std::exit(1);
}

void CheckCall(bool ok, const char* what) {
  if (!ok) Check(ait::ErrnoError(errno, what));
}

// A file as large as the state, read and written by threads.
class Raw {
 public:
  explicit Raw(const std::string& directory)
      : fd_(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
    CheckCall(fd_.is_open(), "making a file for the raw pass");
    CheckCall(::posix_fallocate(fd_.get(), 0, kStateBytes) == 0, "fallocate");
    is_direct_ = ::fcntl(fd_.get(), F_SETFL, O_DIRECT) == 0;
  }
  bool is_direct() const { return is_direct_; }

  // Reads all of it and writes all of it: half of the threads each.
  void Pass(int threads, bool reads, bool writes) {
    std::vector<std::jthread> running;
    for (int i = 0; i < threads; ++i) {
      const bool reader = i % 2 == 0;
      if (reader ? !reads : !writes) continue;
      running.emplace_back([this, reader, part = i / 2, parts = threads / 2] {
        void* piece = ::mmap(nullptr, kRawPiece, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        CheckCall(piece != MAP_FAILED, "mmap");
        for (std::int64_t at = part * kRawPiece; at < kStateBytes; at += parts * kRawPiece) {
          // The last piece is a multiple of the page too.
          const auto bytes = static_cast<std::size_t>(std::min(kRawPiece, kStateBytes - at));
          const ssize_t moved =
              reader ? ::pread(fd_.get(), piece, bytes, at) : ::pwrite(fd_.get(), piece, bytes, at);
          CheckCall(moved == static_cast<ssize_t>(bytes), reader ? "pread" : "pwrite");
        }
        ::munmap(piece, kRawPiece);
      });
    }
  }

 private:
  ait::internal::FileDescriptor fd_;
  bool is_direct_ = false;
};

class Step {
 public:
  explicit Step(const ait::StateOffload& offload) : executor_(ait::TorchExecutor()) {
    const ait::ParameterLayout layout{
        .parameters = {{.name = "p", .begin = 0, .shape = {kElements}}}, .owned = {{0, kElements}}};
    for (ait::HostBuffer* buffer : {&parameters_, &gradients_}) {
      auto made = ait::HostBuffer::Create(ait::HeapResource::Create(), kElements * sizeof(float));
      Check(made.status());
      *buffer = *std::move(made);
    }
    std::ranges::fill(parameters_.As<float>(), 0.02f);
    std::ranges::fill(gradients_.As<float>(), 0.01f);
    auto bound = ait::AdamW{}.Bind(layout, {.executor = executor_, .offload = offload});
    Check(bound.status());
    bound_ = *std::move(bound);
  }
  void Update() {
    Check(bound_->BeginStep({}));
    Check(bound_->Update({.begin = 0,
                          .parameters = ait::View(parameters_.As<float>()),
                          .gradients = ait::View(gradients_.As<float>())}));
  }
  const ait::BoundOptimizer& bound() const { return *bound_; }

 private:
  ait::Executor executor_;
  ait::HostBuffer parameters_;
  ait::HostBuffer gradients_;
  std::unique_ptr<ait::BoundOptimizer> bound_;
};

}  // namespace

int main(int argc, char** argv) {
  ait::benchmarks::Report report(argc, argv);
  static_assert(kStateBytes % 4096 == 0);
  const std::string directory = report.Setting("directory", ".");
  const int rounds = std::stoi(report.Setting("rounds", "12"));
  Raw raw(directory);
  Step memory({});
  Step file({.directory = directory,
             .chunk = ait::MiB(std::stoi(report.Setting("chunk_mib", "4"))),
             .chunks = std::stoi(report.Setting("chunks", "4"))});
  std::printf("%s; raw pass %s\n", file.bound().DescribeState().c_str(),
              raw.is_direct() ? "with O_DIRECT" : "buffered");
  std::map<std::string, std::vector<double>> times;
  const auto measure = [&](const std::string& name, const std::function<void()>& call) {
    const auto start = std::chrono::steady_clock::now();
    call();
    times[name].push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
  };
  for (int round = 0; round <= rounds; ++round) {
    // Disks of virtual machines have bursts: each takes each place.
    for (int place = 0; place < 4; ++place) {
      const int which = (round + place) % 4;
      if (which == 0) {
        measure("file", [&] { file.Update(); });
      } else {
        const int threads = 1 << which;
        measure(ait::StrCat("raw ", threads), [&] { raw.Pass(threads, true, true); });
      }
    }
    measure("memory", [&] { memory.Update(); });
    measure("read", [&] { raw.Pass(8, true, false); });
    measure("write", [&] { raw.Pass(8, false, true); });
    if (round == 0) times.clear();  // the first writes give the files their blocks
  }
  for (const auto& [name, values] : times) {
    std::printf("  %-8s %8.1f / %8.1f ms min / median\n", name.c_str(),
                *std::ranges::min_element(values), Median(values));
  }
  const auto rate = [&](const char* name) {
    return static_cast<double>(kStateBytes) / 1e6 / Median(times[name]);
  };
  std::printf("  reading alone %.2f GB/s, writing alone %.2f GB/s\n", rate("read"), rate("write"));
  const double fastest =
      std::min({Median(times["raw 2"]), Median(times["raw 4"]), Median(times["raw 8"])});
  const double ours = Median(times["file"]);
  report.AddTime("adamw/file/disk", {.ms = ours,
                                     .baseline = "threads that read and write as many bytes",
                                     .baseline_ms = fastest});
  report.Note("state", file.bound().DescribeState());
  report.AddTime(
      "adamw/file/memory",
      {.ms = ours, .baseline = "the same step in memory", .baseline_ms = Median(times["memory"])});
  report.AddValue("adamw/file/resident", static_cast<double>(file.bound().state_bytes()) / 1e6,
                  "MB", "state in memory", static_cast<double>(memory.bound().state_bytes()) / 1e6,
                  static_cast<double>(memory.bound().state_bytes()) /
                      static_cast<double>(file.bound().state_bytes()));
  return report.Finish();
}
