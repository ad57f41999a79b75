// SPDX-License-Identifier: Apache-2.0
// How fast windows of tokens come out of a file, beside what a program would write by hand.
//
// Baselines, in the same run, over the same file in the page cache:
//   naive        one thread; a shuffled list of windows; for each batch a new vector, for each
//   window
//                a pread into a narrow vector and a loop that widens it
//   read         reading the file, for what opening with all checksums costs
//   std-shuffle  a list of the order, made by std::iota and std::shuffle
// Limit: memcpy of as many int64 as the batches hold, between two buffers that are in use.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ait/data/order.h"
#include "ait/data/token_dataset.h"
#include "ait/data/token_file.h"
#include "support/report.h"

namespace ait::benchmarks {
namespace {

constexpr std::int64_t kTokens = std::int64_t{1} << 25;  // uint16: 64 MiB
constexpr std::int64_t kSequence = 1024;
constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kWindows = (kTokens - 1) / kSequence;
constexpr std::int64_t kRowTokens = kSequence + 1;
constexpr int kRepeats = 7;

std::int64_t sink = 0;  // keeps the compiler from dropping what is read

[[noreturn]] void Die(const Status& status) {
  std::fprintf(stderr, "bench_loader: %s\n", status.ToString().c_str());
  ::exit(1);
}

void WriteCorpus(const std::string& path) {
  auto writer = TokenFileWriter::Create(path, {.dtype = DType::kUInt16, .vocabulary_size = 50257});
  if (!writer.ok()) Die(writer.status());
  std::vector<std::uint32_t> tokens(1 << 20);
  std::mt19937 random(1);
  for (std::int64_t written = 0; written < kTokens; written += std::ssize(tokens)) {
    for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(random() % 50257);
    if (Status status = writer->Append(tokens); !status.ok()) Die(status);
  }
  if (const auto header = writer->Commit(); !header.ok()) Die(header.status());
}

// What a training step does with a batch; nothing, or so much work on it.
using Use = void (*)(std::span<const std::int64_t> tokens);

void UseNothing(std::span<const std::int64_t> tokens) { sink += tokens.back(); }

// About 200 us, a very short training step.
void UseAStep(std::span<const std::int64_t> tokens) {
  double x = static_cast<double>(tokens.back());
  for (int i = 0; i < 50'000; ++i) x = x * 0.999999 + 1.0;
  sink += static_cast<std::int64_t>(x);
}

void RunDataset(const std::string& path, SampleOrder order, Bytes prefetch, Use use) {
  auto data = TokenDataset::Open(path, {.sequence_length = kSequence,
                                        .global_batch_size = kBatch,
                                        .order = order,
                                        .prefetch = prefetch,
                                        .verification = Verification::kSizes});
  if (!data.ok()) Die(data.status());
  while (const TokenBatch* batch = data->Next()) use(batch->tokens);
  if (!data->status().ok()) Die(data->status());
}

void RunNaive(const std::string& path, SampleOrder order, Use use) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<std::int64_t> windows(kWindows);
  std::iota(windows.begin(), windows.end(), 0);
  if (order == SampleOrder::kShuffled) {
    std::shuffle(windows.begin(), windows.end(), std::mt19937_64(1));
  }
  for (std::int64_t first = 0; first < kWindows; first += kBatch) {
    std::vector<std::int64_t> batch;
    for (std::int64_t i = first; i < std::min(first + kBatch, kWindows); ++i) {
      std::vector<std::uint16_t> narrow(kRowTokens);
      const std::int64_t offset =
          kTokenFileHeaderBytes + windows[static_cast<std::size_t>(i)] * kSequence * 2;
      if (::pread(fd, narrow.data(), narrow.size() * 2, offset) != std::ssize(narrow) * 2) {
        Die(DataLossError("short read"));
      }
      for (std::uint16_t token : narrow) batch.push_back(token);
    }
    use(batch);
  }
  ::close(fd);
}

// As many bytes as the batches of an epoch, through two buffers of the size of a batch.
void RunMemcpy() {
  static std::vector<std::int64_t> from(kBatch * kRowTokens, 1);
  static std::vector<std::int64_t> to(kBatch * kRowTokens, 2);
  for (std::int64_t first = 0; first < kWindows; first += kBatch) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(std::int64_t));
    from[0] += to.back();
  }
  sink += from[0];
}

// Median seconds of each competitor; they take turns.
std::vector<double> Race(const std::vector<std::function<void()>>& competitors) {
  std::vector<std::vector<double>> seconds(competitors.size());
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (std::size_t i = 0; i < competitors.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      competitors[i]();
      seconds[i].push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
  }
  std::vector<double> medians;
  for (const auto& values : seconds) medians.push_back(Median(values));
  return medians;
}

// As fast as they come, on the thread that asks for them.
void MeasureWindows(Report& report, const std::string& path) {
  for (const auto& [name, order] : {std::pair{"shuffled", SampleOrder::kShuffled},
                                    std::pair{"sequential", SampleOrder::kSequential}}) {
    const SampleOrder how = order;
    const auto seconds = Race({[&] { RunDataset(path, how, Bytes(0), UseNothing); },
                               [&] { RunNaive(path, how, UseNothing); }, [] { RunMemcpy(); }});
    const auto add = [&](std::string_view row, std::string_view unit, double work) {
      report.AddRate(StrCat(name, "/", row, "/naive"), {.value = work / seconds[0],
                                                        .unit = std::string(unit),
                                                        .baseline = "naive",
                                                        .baseline_value = work / seconds[1],
                                                        .limit = work / seconds[2]});
    };
    add("windows", "windows/s", kWindows);
    add("bytes", "GB/s", 8e-9 * kWindows * kRowTokens);
  }
}

// What of it is seen by a program that does something with each batch: the time of an epoch less
// the time of the work alone.
void MeasureExposed(Report& report, const std::string& path) {
  const auto seconds = Race({[&] { RunDataset(path, SampleOrder::kShuffled, MiB(16), UseAStep); },
                             [&] { RunNaive(path, SampleOrder::kShuffled, UseAStep); },
                             [] {
                               const std::vector<std::int64_t> tokens(kBatch * kRowTokens, 1);
                               for (std::int64_t first = 0; first < kWindows; first += kBatch)
                                 UseAStep(tokens);
                             }});
  constexpr double kBatches = static_cast<double>((kWindows - 1) / kBatch + 1);
  const auto exposed_ms = [&](double total) {
    return std::max(total - seconds[2], 1e-6) * 1e3 / kBatches;
  };
  report.AddTime(
      "exposed_per_batch/naive",
      {.ms = exposed_ms(seconds[0]), .baseline = "naive", .baseline_ms = exposed_ms(seconds[1])});
}

// Opening with all checksums against reading the same bytes, which is its limit.
void MeasureVerification(Report& report, const std::string& path) {
  std::vector<std::byte> buffer(1 << 18);
  const auto seconds = Race({[&] {
                               const auto source = OpenTokenSource(path);
                               if (!source.ok()) Die(source.status());
                             },
                             [&] {
                               const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
                               while (::read(fd, buffer.data(), buffer.size()) > 0) {
                                 sink += static_cast<int>(buffer[0]);
                               }
                               ::close(fd);
                             }});
  constexpr double kGigabytes = 2e-9 * kTokens;
  report.AddRate("open/checksum/read", {.value = kGigabytes / seconds[0],
                                        .unit = "GB/s",
                                        .baseline = "read",
                                        .baseline_value = kGigabytes / seconds[1],
                                        .limit = kGigabytes / seconds[1]});
}

void MeasureOrder(Report& report) {
  constexpr std::int64_t kItems = 10'000'000;
  const auto seconds = Race({[] {
                               const Permutation order(kItems, 1, 0);
                               for (std::int64_t i = 0; i < kItems; ++i) sink += order(i);
                             },
                             [] {
                               std::vector<std::int64_t> items(kItems);
                               std::iota(items.begin(), items.end(), 0);
                               std::shuffle(items.begin(), items.end(), std::mt19937_64(1));
                               for (std::int64_t item : items) sink += item;
                             }});
  report.AddRate("order/index/std-shuffle", {.value = kItems / seconds[0],
                                             .unit = "indices/s",
                                             .baseline = "std-shuffle",
                                             .baseline_value = kItems / seconds[1]});
}

int Main(int argc, char** argv) {
  Report report(argc, argv);
  std::string directory =
      (std::filesystem::temp_directory_path() / "ait-bench-loader-XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) Die(InternalError("cannot make ", directory));
  const std::string path = directory + "/corpus.tokens";
  WriteCorpus(path);
  MeasureWindows(report, path);
  MeasureExposed(report, path);
  MeasureVerification(report, path);
  MeasureOrder(report);
  std::filesystem::remove_all(directory);
  std::printf("(sum of what was read: %lld)\n", static_cast<long long>(sink));
  return report.Finish();
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) { return ait::benchmarks::Main(argc, argv); }
