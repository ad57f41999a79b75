// SPDX-License-Identifier: Apache-2.0
// The data component beside the loaders that others use, over the same files in the same run.
//
//   bench_data [--json FILE] [--peers PYTHON] [DIR=build/bench/data] [MB=512] [ROUNDS=5] [ONLY=tar]
//
// Baselines and limits:
//   pagecache    pread of 1 MiB into one buffer, over the same shards: the limit of a warm read
//   fio          the disk by io_uring and O_DIRECT, 1 MiB, 8 in flight; where fio is installed
//   webdataset, streaming, dataloader   Python's, with --peers (benchmarks/peers/loader.py); the
//                better of 0 and 2 workers where the name has no number
//   files        open, read and close of every file of a folder, in order
//   bar          a number that is asked for and has no other baseline
// Every round takes all competitors of a case in turn; values are medians over rounds.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ait/base/throw_on_error.h"
#include "ait/data/format/formats.h"
#include "ait/data/format/index.h"
#include "ait/data/format/write_shards.h"
#include "ait/data/loader/data_loader.h"
#include "ait/data/plan/data_plan.h"
#include "ait/data/storage/local_storage.h"
#include "ait/data/token_dataset.h"
#include "data/data_files.h"
#include "support/report.h"

namespace ait::benchmarks {
namespace {

std::atomic<std::int64_t> sink = 0;  // keeps the compiler from dropping what is read

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Runs a command and returns what it prints; empty if it fails.
std::string Output(const std::string& command) {
  std::string text;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char block[4096];
  while (const std::size_t got = std::fread(block, 1, sizeof(block), pipe)) text.append(block, got);
  return ::pclose(pipe) == 0 ? text : "";
}

// ---- competitors -------------------------------------------------------------------------------

void ReadByPread(const std::vector<std::string>& paths) {
  static std::vector<char> block(1 << 20);
  for (const std::string& path : paths) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    std::int64_t offset = 0;
    while (const ssize_t got = ::pread(fd, block.data(), block.size(), offset)) {
      if (got < 0) std::abort();
      offset += got;
      sink += block[0];
    }
    ::close(fd);
  }
}

// Every sample of every shard, in order, by one thread; touches a byte of each field as the peers
// do by asking for its length.
std::int64_t ReadShards(const Storage& storage, std::span<const std::string> paths,
                        const StreamOptions& options) {
  std::int64_t samples = 0, bytes = 0;
  Sample sample;
  for (const std::string& path : paths) {
    const auto object = ThrowOnError(storage.Open(path));
    std::shared_ptr<const StoredObject> index;
    if (auto beside = storage.Open(IndexPath(path)); beside.ok()) index = *std::move(beside);
    const auto shard = ThrowOnError(OpenShard(object, {}, index));
    const auto stream = ThrowOnError(shard->Stream(options));
    while (ThrowOnError(stream->Next(sample))) {
      ++samples;
      for (const SampleField& field : sample.fields) {
        bytes += static_cast<std::int64_t>(field.value.size_bytes());
      }
    }
  }
  sink += bytes;
  return samples;
}

void ReadByThreads(const Storage& storage, std::span<const std::string> paths, int threads,
                   const StreamOptions& options) {
  std::vector<std::thread> pool;
  std::atomic<std::size_t> next = 0;
  for (int i = 0; i < threads; ++i) {
    pool.emplace_back([&] {
      for (std::size_t at = next++; at < paths.size(); at = next++) {
        ReadShards(storage, paths.subspan(at, 1), options);
      }
    });
  }
  for (std::thread& thread : pool) thread.join();
}

// ---- the benchmark -----------------------------------------------------------------------------

class DataBenchmark {
 public:
  explicit DataBenchmark(Report& report)
      : report_(report),
        directory_(report.Setting("DIR", "build/bench/data")),
        megabytes_(std::stoll(report.Setting("MB", "512"))),
        rounds_(std::stoi(report.Setting("ROUNDS", "5"))),
        only_(report.Setting("ONLY", "")),
        storage_(ThrowOnError(LocalStorage::Create({}))) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  ~DataBenchmark() { std::filesystem::remove_all(directory_); }

  void Run() {
    if (IsWanted("plan")) Plan();
    if (IsWanted("loader")) LoaderOverhead();
    if (IsWanted("open")) OpenMany();
    if (IsWanted("tar")) Tars("16KiB", 4 << 10, 64 << 10, true);
    if (IsWanted("tar")) Tars("2KiB", 1 << 10, 4 << 10, false);
    if (IsWanted("tokens")) Tokens();
    if (IsWanted("files")) Files();
  }

 private:
  bool IsWanted(const std::string& part) const { return only_.empty() || only_ == part; }

  // Medians of competitors that take turns.
  std::vector<double> Race(const std::vector<std::function<void()>>& competitors,
                           const std::function<void()>& before = {}) const {
    std::vector<std::vector<double>> seconds(competitors.size());
    for (int round = 0; round < rounds_; ++round) {
      for (std::size_t i = 0; i < competitors.size(); ++i) {
        if (before) before();
        seconds[i].push_back(Seconds(competitors[i]));
      }
    }
    std::vector<double> medians;
    for (const auto& values : seconds) medians.push_back(Median(values));
    return medians;
  }

  // Median seconds and samples a round of a peer; nullopt without --peers or if it fails.
  struct PeerResult {
    double seconds;
    double samples;
    double bytes;
  };
  std::optional<PeerResult> Peer(const std::string& name, const std::string& path) const {
    if (report_.peers_python().empty()) return std::nullopt;
    const std::string text =
        Output(StrCat(report_.peers_python(), " ", AIT_PEER_LOADER, " read ", name, " ", path, " ",
                      std::max(3, rounds_ - 2), " 2>/dev/null"));
    const std::size_t at = text.find("{\"seconds\"");
    if (at == std::string::npos) return std::nullopt;
    const auto row = nlohmann::json::parse(text.substr(at), nullptr, false);
    if (!row.is_object()) return std::nullopt;
    // The best of its rounds: the peers' first is slower.
    const auto seconds = row["seconds"].get<std::vector<double>>();
    return PeerResult{*std::min_element(seconds.begin(), seconds.end()), row["samples"],
                      row["bytes"]};
  }

  // The best of a peer without and with worker processes.
  std::optional<PeerResult> BestPeer(const std::string& name, const std::string& path) const {
    std::optional<PeerResult> best;
    for (const char* workers : {"0", "2"}) {
      const auto peer = Peer(StrCat(name, workers), path);
      if (peer && (!best || peer->seconds < best->seconds)) best = peer;
    }
    return best;
  }

  void Tars(const std::string& size, std::int64_t low, std::int64_t high, bool with_more) {
    const SampleFiles files =
        MakeTars(StrCat(directory_, "/tar", size), megabytes_ << 20, low, high);
    Warm(files.shards);
    const StreamOptions warm = {.depth = 0};
    const auto ours = [&] { ReadShards(*storage_, files.shards, warm); };
    const auto seconds = Race({ours, [&] { ReadByPread(files.shards); },
                               [&] { ReadByThreads(*storage_, files.shards, 2, warm); }});
    const auto payload = static_cast<double>(files.payload_bytes) * 1e-6;
    const double file_megabytes = static_cast<double>(files.file_bytes) * 1e-6;
    const std::string name = StrCat("tar/", size);
    report_.AddRate(StrCat(name, "/1t/pagecache"), {.value = payload / seconds[0],
                                                    .unit = "MB/s",
                                                    .baseline = "page cache",
                                                    .baseline_value = file_megabytes / seconds[1]});
    report_.Note("samples_per_s", static_cast<double>(files.samples) / seconds[0]);
    report_.AddRate(StrCat(name, "/2t/1t"), {.value = payload / seconds[2],
                                             .unit = "MB/s",
                                             .baseline = "one thread",
                                             .baseline_value = payload / seconds[0]});
    if (const auto peer = BestPeer("webdataset", files.directory)) {
      report_.AddRate(StrCat(name, "/1t/webdataset"),
                      {.value = payload / seconds[0],
                       .unit = "MB/s",
                       .baseline = "webdataset",
                       .baseline_value = peer->bytes * 1e-6 / peer->seconds});
    }
    if (with_more) {
      Cold("tar/cold/fio", files);
      Mds(files);
    }
    std::filesystem::remove_all(files.directory);
  }

  // Cold reads of ours and of fio take turns; both past the page cache, 1 MiB, 8 in flight.
  void Cold(const std::string& name, const SampleFiles& files) {
    std::string list;
    for (const std::string& path : files.shards) list += StrCat(list.empty() ? "" : ":", path);
    const std::string command = StrCat(
        "fio --name=cold --readonly --rw=read --bs=1M --iodepth=8 --ioengine=io_uring --direct=1 "
        "--file_service_type=sequential --output-format=json --filename=",
        list, " 2>/dev/null");
    const StreamOptions cold = {.block_bytes = 1 << 20, .depth = 8};
    std::vector<double> ours, fio;
    for (int round = 0; round < rounds_; ++round) {
      DropFromCache(files.shards);
      ours.push_back(static_cast<double>(files.file_bytes) * 1e-6 /
                     Seconds([&] { ReadShards(*storage_, files.shards, cold); }));
      DropFromCache(files.shards);
      const std::string text = Output(command);
      const std::size_t at = text.find('{');
      const auto row = at == std::string::npos
                           ? nlohmann::json()
                           : nlohmann::json::parse(text.substr(at), nullptr, false);
      if (row.is_object() && !row["jobs"].empty()) {
        fio.push_back(row["jobs"][0]["read"]["bw_bytes"].get<double>() * 1e-6);
      }
    }
    if (fio.empty()) {
      std::printf("%s: fio is not installed; not measured\n", name.c_str());
      return;
    }
    report_.AddRate(
        name,
        {.value = Median(ours), .unit = "MB/s", .baseline = "fio", .baseline_value = Median(fio)});
  }

  void Mds(const SampleFiles& tars) {
    if (report_.peers_python().empty()) {
      std::printf("mds/…: its files are written by streaming, with --peers; not measured\n");
      return;
    }
    const std::string directory = StrCat(directory_, "/mds");
    Output(StrCat(report_.peers_python(), " ", AIT_PEER_LOADER, " write-mds ", tars.directory, " ",
                  directory, " 2>/dev/null"));
    if (!std::filesystem::exists(directory)) return;
    const SampleFiles files = MdsShards(directory);
    Warm(files.shards);
    const auto seconds = Race(
        {[&] { ReadShards(*storage_, files.shards, {}); }, [&] { ReadByPread(files.shards); }});
    const auto payload = static_cast<double>(tars.payload_bytes) * 1e-6;
    report_.AddRate("mds/16KiB/1t/pagecache",
                    {.value = payload / seconds[0],
                     .unit = "MB/s",
                     .baseline = "page cache",
                     .baseline_value = static_cast<double>(files.file_bytes) * 1e-6 / seconds[1]});
    if (const auto peer = BestPeer("streaming", directory)) {
      report_.AddRate("mds/16KiB/1t/streaming",
                      {.value = payload / seconds[0],
                       .unit = "MB/s",
                       .baseline = "streaming",
                       .baseline_value = peer->bytes * 1e-6 / peer->seconds});
    }
    Cold("mds/cold/fio", files);
  }

  // Windows of 1,024 in a random order, batches of 32, on the thread that asks for them.
  void Tokens() {
    constexpr std::int64_t kWindow = 1024, kBatch = 32, kBatches = 4000;
    const std::string directory = StrCat(directory_, "/tokens");
    MakeTokens(directory, megabytes_ << 19);
    Warm({StrCat(directory, "/tokens.tokens"), StrCat(directory, "/tokens.u16")});
    const auto run = [&](Bytes prefetch) {
      auto data = ThrowOnError(TokenDataset::Open(StrCat(directory, "/tokens.tokens"),
                                                  {.sequence_length = kWindow,
                                                   .global_batch_size = kBatch,
                                                   .epochs = kUnlimitedEpochs,
                                                   .prefetch = prefetch,
                                                   .verification = Verification::kSizes}));
      for (std::int64_t i = 0; i < kBatches; ++i) {
        const TokenBatch* batch = data.Next();
        if (batch == nullptr) std::abort();
        sink += batch->tokens.back();
      }
    };
    const auto seconds = Race({[&] { run(Bytes(0)); }, [&] { run(MiB(16)); }});
    const double tokens = static_cast<double>(kWindow * kBatch * kBatches) * 1e-6;
    for (const auto& [name, workers, ours] :
         {std::tuple{"tokens/1024/dataloader0", "dataloader0", seconds[0]},
          std::tuple{"tokens/1024/dataloader2", "dataloader2", seconds[0]}}) {
      const auto peer = Peer(workers, StrCat(directory, "/tokens.u16"));
      if (!peer) continue;
      report_.AddRate(name, {.value = tokens / ours,
                             .unit = "Mtok/s",
                             .baseline = workers,
                             .baseline_value = peer->samples * kWindow * 1e-6 / peer->seconds});
    }
    report_.AddRate("tokens/1024/prefetch", {.value = tokens / seconds[1],
                                             .unit = "Mtok/s",
                                             .baseline = "in the calling thread",
                                             .baseline_value = tokens / seconds[0]});
  }

  // The same samples as single files and as the shards that `ait pack files` makes of them.
  void Files() {
    const SampleFiles folder = MakeFolder(StrCat(directory_, "/files"), 100'000);
    const std::string packed_directory = StrCat(directory_, "/packed");
    const auto samples =
        ThrowOnError(OpenSamples(storage_, folder.directory, {.shard = {.format = "folder"}}));
    const WriteReport packed = ThrowOnError(
        WriteShards(*samples, {.directory = packed_directory, .shard_bytes = 64 << 20}));
    std::vector<std::string> shards;
    for (const std::string& file : packed.shards)
      shards.push_back(StrCat(packed_directory, "/", file));
    const bool is_cold = DropAllCaches();
    const auto seconds = Race(
        {[&] { ReadShards(*storage_, shards, {.depth = 4}); }, [&] { ReadByPread(folder.shards); }},
        [&] { DropAllCaches(); });
    report_.AddRate("files/100k/packed", {.value = 1e5 / seconds[0],
                                          .unit = "samples/s",
                                          .baseline = is_cold ? "files, cold" : "files, warm",
                                          .baseline_value = 1e5 / seconds[1]});
    const auto warm =
        Race({[&] { ReadShards(*storage_, shards, {}); }, [&] { ReadByPread(folder.shards); }});
    report_.AddRate("files/100k/packed/warm", {.value = 1e5 / warm[0],
                                               .unit = "samples/s",
                                               .baseline = "files, warm",
                                               .baseline_value = 1e5 / warm[1]});
  }

  // Indexes at random, each a function call.
  void Plan() {
    constexpr std::int64_t kCount = 1'000'000'000, kCalls = 1'000'000;
    for (const auto& [name, order] :
         {std::pair{"plan/1e9/ns", SampleOrder::kShuffled},
          std::pair{"plan/1e9/blocks/ns", SampleOrder::kBlockShuffled}}) {
      const DataPlan plan =
          ThrowOnError(DataPlan::Create({{.name = "1e9",
                                          .count = kCount,
                                          .digest = 1,
                                          .block_begins = UniformBlocks(kCount, 1'000'000)}},
                                        {.global_batch_size = 32, .seed = 1, .order = order}));
      const auto seconds = Race({[&] {
        std::uint64_t at = 12345;
        for (std::int64_t i = 0; i < kCalls; ++i) {
          at = at * 6364136223846793005u + 1442695040888963407u;
          sink += plan.At(0, static_cast<std::int64_t>((at >> 20) % kCount)).id;
        }
      }});
      const double nanoseconds = seconds[0] * 1e9 / kCalls;
      report_.AddValue(name, nanoseconds, "ns", "bar", 100, 100 / nanoseconds);
    }
  }

  // From the path of a directory of 1,000 indexed shards to the first batch.
  void OpenMany() {
    const SampleFiles files = MakeManyShards(StrCat(directory_, "/many"), 1000);
    const auto open = [&] {
      const auto samples = ThrowOnError(OpenSamples(storage_, files.directory));
      auto plan = std::make_shared<const DataPlan>(ThrowOnError(
          DataPlan::Create({MakePlanSource(*samples)}, {.global_batch_size = 32, .seed = 1})));
      auto loader = ThrowOnError(DataLoader::Create(plan, {samples}, {}));
      if (loader.Next() == nullptr) ThrowOnError(loader.status());
    };
    const double milliseconds = Race({open})[0] * 1e3;
    report_.AddValue("open/1000/ms", milliseconds, "ms", "bar", 50, 50 / milliseconds);
    std::filesystem::remove_all(files.directory);
  }

  // What the loader itself takes of a batch of 32 samples that cost nothing.
  void LoaderOverhead() {
    class Tiny final : public SampleSource {
     public:
      const std::string& name() const override { return name_; }
      std::int64_t sample_count() const override { return 1 << 20; }
      std::uint64_t digest() const override { return 1; }
      std::int64_t size_bytes(std::int64_t) const override { return 8; }
      void Read(std::span<SampleRead> reads) const override {
        for (SampleRead& read : reads) {
          read.sample.id = read.id;
          read.sample.fields.resize(1);
          SampleField& field = read.sample.fields[0];
          field.name.assign(1, 'x');
          field.value = value_;
          field.kind = FieldKind::kArray;
          field.dtype = DType::kInt64;
        }
      }

     private:
      const std::string name_ = "tiny";
      const ByteView value_ = ByteView::Copy(std::string_view("12345678"));
    };
    const auto tiny = std::make_shared<const Tiny>();
    auto plan = std::make_shared<const DataPlan>(
        ThrowOnError(DataPlan::Create({MakePlanSource(*tiny)}, {.global_batch_size = 32})));
    const auto run = [&](int threads) {
      auto loader = ThrowOnError(DataLoader::Create(plan, {tiny}, {.threads = threads}));
      while (const DataBatch* batch = loader.Next()) sink += batch->arrays[0].As<std::int64_t>()[0];
      ThrowOnError(loader.status());
    };
    const auto seconds = Race({[&] { run(0); }, [&] { run(1); }});
    const double batches = (1 << 20) / 32.0;
    for (const auto& [name, value] : {std::pair{"loader/overhead/us", seconds[0]},
                                      std::pair{"loader/overhead/1t/us", seconds[1]}}) {
      const double microseconds = value * 1e6 / batches;
      report_.AddValue(name, microseconds, "us", "bar", 20, 20 / microseconds);
    }
  }

  Report& report_;
  const std::string directory_;
  const std::int64_t megabytes_;
  const int rounds_;
  const std::string only_;
  const std::shared_ptr<const Storage> storage_;
};

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) {
  ait::benchmarks::Report report(argc, argv);
  try {
    ait::benchmarks::DataBenchmark(report).Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_data: %s\n", error.what());
    return 1;
  }
  return report.Finish();
}
