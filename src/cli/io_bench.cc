// SPDX-License-Identifier: Apache-2.0
#include "cli/io_bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cxxopts.hpp>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/data/storage/local_storage.h"
#include "ait/data/storage/open_storage.h"
#include "cli/io_bench_data.h"
#include "cli/program.h"
#include "cli/topic.h"
#include "data/storage/uri_internal.h"

namespace ait::cli {
namespace {

constexpr char kExamples[] = R"(
PATH is a file or a URL (http, https, s3), which is only read, or a directory, in which a file of --size and --files small ones are
made and deleted again. "plain" is pread into one buffer; the last column compares with it. Depth: blocks
read ahead, or random reads given with one call. "cold": the file is dropped from the page cache before
(posix_fadvise; with --drop all everything, which needs root); what the kernel keeps is said.

Examples:
  ait bench io /data                      a test file there, every engine, cold and warm
  ait bench io /data/shard-00000.tar --engine automatic,io_uring --block 256K,1M --depth 8,32
  ait bench io /mnt/nfs --size 4G --cache cold --json io.json
  ait bench io s3://bucket/train/shard-00000.tar --block 8M --depth 0,4,16
)";

struct Request {
  std::string path;
  std::vector<LocalEngine> engines;
  std::vector<std::int64_t> blocks, random_blocks;
  std::vector<int> depths;
  bool warm = false, cold = false, drops_all = false;
  std::int64_t size_bytes = 0, file_bytes = 0;
  std::int64_t files = 0;
  double seconds = 0;
  std::string json;
};

cxxopts::Options MakeOptions() {
  cxxopts::Options options("ait bench io", "Measures how fast files are read, by each engine.\n");
  options.custom_help("[OPTION...] PATH");
  options.positional_help("");
  const auto text = [](const char* fallback) {
    return cxxopts::value<std::string>()->default_value(fallback);
  };
  cxxopts::OptionAdder add = options.add_options();
  add("path", "a file, a URL or a directory", cxxopts::value<std::string>(), "PATH");
  add("engine", "all, or of: automatic,pread,io_uring,mapped,network", text("all"), "LIST");
  add("block", "sizes of sequential reads (K, M, G: 1024)", text("128K,1M"), "LIST");
  add("random", "sizes of random reads", text("2K,128K"), "LIST");
  add("depth", "blocks read ahead", text("0,8"), "LIST");
  add("cache", "cold,warm or one of them", text("cold,warm"), "LIST");
  add("drop", "how it gets cold: file, or all (root)", text("file"), "file|all");
  add("size", "bytes that are read; size of the file that is made", text("512M"), "SIZE");
  add("files", "small files that are made, 0: none", text("2000"), "N");
  add("file-size", "size of each", text("4K"), "SIZE");
  add("seconds", "most time of one measurement", text("3"), "S");
  add("json", "also write the result", cxxopts::value<std::string>(), "FILE");
  add("h,help", "print this help");
  options.parse_positional({"path"});
  return options;
}

std::vector<std::string> Words(std::string_view list) {
  std::vector<std::string> words;
  while (true) {
    const std::size_t comma = list.find(',');
    words.emplace_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return words;
    list.remove_prefix(comma + 1);
  }
}

StatusOr<std::vector<std::int64_t>> ReadSizes(std::string_view option, const std::string& list) {
  std::vector<std::int64_t> sizes;
  for (const std::string& word : Words(list)) {
    AIT_ASSIGN_OR_RETURN(const std::int64_t size, ParseByteSize(option, word));
    if (size > std::int64_t{1} << 30) {
      return InvalidArgumentError("option ", option, " cannot be '", word, "': at most 1G");
    }
    sizes.push_back(size);
  }
  return sizes;
}

StatusOr<Request> ReadRequest(const cxxopts::ParseResult& parsed) {
  const auto text = [&](const char* name) { return parsed[name].as<std::string>(); };
  Request request;
  if (parsed.count("path") == 0) return InvalidArgumentError("give a PATH: a file or a directory");
  request.path = text("path");
  const std::string engines = text("engine");
  for (const std::string& word :
       Words(engines == "all" ? "automatic,pread,io_uring,mapped,network" : engines)) {
    AIT_ASSIGN_OR_RETURN(const LocalEngine engine, LocalEngineFromName(word));
    request.engines.push_back(engine);
  }
  AIT_ASSIGN_OR_RETURN(request.blocks, ReadSizes("--block", text("block")));
  AIT_ASSIGN_OR_RETURN(request.random_blocks, ReadSizes("--random", text("random")));
  for (const std::string& word : Words(text("depth"))) {
    AIT_ASSIGN_OR_RETURN(const int depth,
                         ParseNumber("--depth", word, 0, 1024, "numbers from 0 to 1024"));
    request.depths.push_back(depth);
  }
  for (const std::string& word : Words(text("cache"))) {
    if (word != "cold" && word != "warm") {
      return InvalidArgumentError("option --cache cannot be '", word, "': give cold, warm or both");
    }
    (word == "cold" ? request.cold : request.warm) = true;
  }
  const std::string drop = text("drop");
  if (drop != "file" && drop != "all") {
    return InvalidArgumentError("option --drop cannot be '", drop, "': give file or all");
  }
  request.drops_all = drop == "all";
  AIT_ASSIGN_OR_RETURN(request.size_bytes, ParseByteSize("--size", text("size")));
  AIT_ASSIGN_OR_RETURN(request.file_bytes, ParseByteSize("--file-size", text("file-size")));
  AIT_ASSIGN_OR_RETURN(request.files,
                       ParseNumber<std::int64_t>("--files", text("files"), 0, 10'000'000,
                                                 "a whole number, at least 0"));
  AIT_ASSIGN_OR_RETURN(request.seconds, ParseNumber("--seconds", text("seconds"), 0.001, 3600.0,
                                                    "a number above 0"));
  if (parsed.count("json") != 0) request.json = text("json");
  return request;
}

/// Whether the path is a URL of a server.
bool IsRemote(std::string_view path) {
  const std::size_t end = path.find("://");
  return end != std::string_view::npos && path.substr(0, end) != "file" &&
         path.substr(0, end).find('/') == std::string_view::npos;
}

/// What is measured, and what was made for that.
class Material {
 public:
  Material() = default;
  Material(Material&&) = default;
  ~Material() {
    std::error_code ignored;
    if (!made.empty()) std::filesystem::remove_all(made, ignored);
  }

  std::string file;
  std::vector<std::string> small;
  std::string made;  // a directory that is deleted at the end
};

Status WriteFile(const std::string& path, std::int64_t bytes, std::mt19937_64& random) {
  std::vector<std::uint64_t> words(1 << 17);
  std::ofstream out(path, std::ios::binary);
  while (bytes > 0 && out) {
    // Not compressible, and no block twice.
    for (std::uint64_t& word : words) word = random();
    const auto part = std::min<std::int64_t>(bytes, static_cast<std::int64_t>(words.size()) * 8);
    out.write(reinterpret_cast<const char*>(words.data()), part);
    bytes -= part;
  }
  out.close();
  return out ? OkStatus() : UnavailableError("cannot write ", path, ": is the disk full?");
}

Status Make(const Request& request, Material& material) {
  if (IsRemote(request.path)) return OkStatus();
  std::error_code error;
  if (!std::filesystem::is_directory(request.path, error)) {
    material.file = request.path;
    return OkStatus();
  }
  const std::string made = StrCat(request.path, "/ait-bench-io-", ::getpid());
  if (!std::filesystem::create_directory(made, error)) {
    return UnavailableError("cannot make ", made, ": ", error.message());
  }
  material.made = made;
  material.file = made + "/data";
  std::mt19937_64 random(7);
  AIT_RETURN_IF_ERROR(WriteFile(material.file, request.size_bytes, random));
  for (std::int64_t i = 0; i < request.files; ++i) {
    material.small.push_back(StrCat(made, "/file-", i));
    std::ofstream out(material.small.back(), std::ios::binary);
    out << std::string(static_cast<std::size_t>(request.file_bytes), 'x');
    if (!out.flush()) return UnavailableError("cannot write ", material.small.back());
  }
  return OkStatus();
}

class IoBench {
 public:
  IoBench(const Request& request, const Material& material)
      : request_(request), material_(material) {}

  Status Run() {
    if (IsRemote(request_.path)) return Remote();
    AIT_RETURN_IF_ERROR(Describe());
    std::fputs(IoBenchHeader().c_str(), stdout);
    for (const bool cold : {true, false}) {
      if (!(cold ? request_.cold : request_.warm)) continue;
      cache_ = cold ? "cold" : "warm";
      if (!cold) {
        IoBenchShape all = Shape(1 << 20, 0);
        all.most_seconds = std::numeric_limits<double>::infinity();  // else it is warm in part
        AIT_RETURN_IF_ERROR(MeasurePlain(material_.file, all).status());
      }
      AIT_RETURN_IF_ERROR(Sequential());
      AIT_RETURN_IF_ERROR(Random());
      AIT_RETURN_IF_ERROR(Files());
    }
    if (kept_ > 0.01) {
      Say(StrCat("the kernel kept up to ", static_cast<int>(kept_ * 100 + 0.5),
                 " % of the file in memory: cold rows are too fast; try --drop all"));
    }
    return OkStatus();
  }

  const std::vector<IoBenchRow>& rows() const { return rows_; }
  const std::vector<std::string>& about() const { return about_; }

 private:
  void Say(const std::string& line) {
    about_.push_back(line);
    std::printf("# %s\n", line.c_str());
  }

  // An object of a server, by the storage of its URL; nothing is made there.
  Status Remote() {
    AIT_ASSIGN_OR_RETURN(const auto storage, OpenStorage(request_.path));
    AIT_ASSIGN_OR_RETURN(const ObjectInfo info, storage->Stat(request_.path));
    bytes_ = std::min(info.size_bytes, request_.size_bytes);
    Say(StrCat(internal::WithoutSecrets(info.url), " by ", storage->name(), ": ", info.size_bytes,
               " bytes"));
    std::fputs(IoBenchHeader().c_str(), stdout);
    cache_ = "as it is";
    for (const std::int64_t block : request_.blocks) {
      for (const int depth : request_.depths) {
        AIT_RETURN_IF_ERROR(Row(
            "", [&] { return MeasureSequential(*storage, request_.path, Shape(block, depth)); }));
      }
    }
    for (const std::int64_t block : request_.random_blocks) {
      if (!Fits(block)) continue;
      for (const int together : {1, 64}) {
        AIT_RETURN_IF_ERROR(Row(
            "", [&] { return MeasureRandom(*storage, request_.path, Shape(block, together)); }));
      }
    }
    return OkStatus();
  }

  Status Describe() {
    AIT_ASSIGN_OR_RETURN(const auto files, LocalStorage::Create());
    if (request_.cold) AIT_RETURN_IF_ERROR(Drop());
    AIT_ASSIGN_OR_RETURN(const EngineChoice choice, files->Explain(material_.file));
    bytes_ = std::min(choice.size_bytes, request_.size_bytes);
    Say(StrCat(material_.file, " would go: ", ToString(choice)));
    return OkStatus();
  }

  bool Fits(std::int64_t block) {
    if (block <= bytes_) return true;
    if (cache_ != "warm" || !request_.cold) {
      Say(StrCat("no random reads of ", block, " bytes: there are ", bytes_));
    }
    return false;
  }

  IoBenchShape Shape(std::int64_t block, int depth) const {
    return {.block_bytes = block,
            .depth = depth,
            .most_bytes = request_.size_bytes,
            .most_seconds = request_.seconds};
  }

  Status Drop() {
    if (request_.drops_all) return DropAllCaches();
    AIT_ASSIGN_OR_RETURN(const double kept, DropFromCache(material_.file));
    kept_ = std::max(kept_, kept);
    return OkStatus();
  }

  // Makes the cache as it is to be, measures and shows.
  template <typename Measure>
  Status Row(const std::string& engine, const Measure& measure) {
    if (cache_ == "cold") AIT_RETURN_IF_ERROR(Drop());
    AIT_ASSIGN_OR_RETURN(IoBenchRow row, measure());
    row.cache = cache_;
    if (!engine.empty()) row.engine = engine;
    rows_.push_back(std::move(row));
    SetRatios(rows_);
    std::fputs(IoBenchLine(rows_.back()).c_str(), stdout);
    std::fflush(stdout);
    return OkStatus();
  }

  Status Sequential() {
    for (const std::int64_t block : request_.blocks) {
      AIT_RETURN_IF_ERROR(Row("", [&] { return MeasurePlain(material_.file, Shape(block, 0)); }));
      for (const LocalEngine engine : request_.engines) {
        if (engine == LocalEngine::kMapped) continue;  // streams as pread does
        AIT_ASSIGN_OR_RETURN(const auto files, LocalStorage::Create({.engine = engine}));
        for (const int depth : request_.depths) {
          AIT_RETURN_IF_ERROR(Row(std::string(Name(engine)), [&] {
            return MeasureSequential(*files, material_.file, Shape(block, depth));
          }));
        }
      }
    }
    return OkStatus();
  }

  Status Random() {
    for (const std::int64_t block : request_.random_blocks) {
      if (!Fits(block)) continue;
      for (const LocalEngine engine : request_.engines) {
        if (engine == LocalEngine::kUring) continue;  // reads as pread does
        AIT_ASSIGN_OR_RETURN(const auto files, LocalStorage::Create({.engine = engine}));
        for (const int together : {1, 64}) {
          IoBenchShape shape = Shape(block, together);
          if (cache_ == "cold") shape.most_reads = 2'000;
          AIT_RETURN_IF_ERROR(Row(std::string(Name(engine)),
                                  [&] { return MeasureRandom(*files, material_.file, shape); }));
        }
      }
    }
    return OkStatus();
  }

  Status Files() {
    if (material_.small.empty()) return OkStatus();
    if (cache_ == "cold" && !request_.drops_all) {
      for (const std::string& file : material_.small) {
        AIT_RETURN_IF_ERROR(DropFromCache(file).status());
      }
    }
    AIT_ASSIGN_OR_RETURN(const auto files, LocalStorage::Create());
    return Row("automatic", [&] { return MeasureFiles(*files, material_.small, Shape(1, 0)); });
  }

  const Request& request_;
  const Material& material_;
  std::string cache_;
  double kept_ = 0;
  std::int64_t bytes_ = 0;  // that are read
  std::vector<IoBenchRow> rows_;
  std::vector<std::string> about_;
};

int Run(const cxxopts::ParseResult& parsed) {
  const StatusOr<Request> request = ReadRequest(parsed);
  if (!request.ok()) return FailUsage("bench", Message(request.status()));
  Material material;
  if (const Status made = Make(*request, material); !made.ok()) return Fail("bench", made);
  IoBench bench(*request, material);
  if (const Status measured = bench.Run(); !measured.ok()) return Fail("bench", measured);
  if (request->json.empty()) return kSuccess;
  std::ofstream file(request->json);
  file << IoBenchJson(
      IsRemote(request->path) ? internal::WithoutSecrets(request->path) : request->path,
      bench.about(), bench.rows());
  if (!file.flush()) return Fail("bench", UnavailableError("cannot write ", request->json));
  return kSuccess;
}

}  // namespace

int RunIoBench(int argc, char** argv) {
  cxxopts::Options options = MakeOptions();
  return RunTopic(
      {.subcommand = "bench", .name = "io", .ask = "say what to measure", .examples = kExamples},
      options, argc, argv, Run);
}

}  // namespace ait::cli
