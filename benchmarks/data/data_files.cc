// SPDX-License-Identifier: Apache-2.0
#include "data/data_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <span>

#include "ait/base/throw_on_error.h"
#include "ait/data/format/formats.h"
#include "ait/data/token_file.h"

namespace ait::benchmarks {
namespace {

constexpr std::int64_t kShardBytes = std::int64_t{64} << 20;

// Bytes that do not compress, as photos are.
class Noise {
 public:
  explicit Noise(std::uint32_t seed) : random_(seed), bytes_(std::size_t{4} << 20) {
    for (std::size_t i = 0; i + 4 <= bytes_.size(); i += 4) {
      const auto word = static_cast<std::uint32_t>(random_());
      bytes_[i] = static_cast<std::byte>(word);
      bytes_[i + 1] = static_cast<std::byte>(word >> 8);
      bytes_[i + 2] = static_cast<std::byte>(word >> 16);
      bytes_[i + 3] = static_cast<std::byte>(word >> 24);
    }
  }
  std::int64_t Size(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_()) % (high - low + 1);
  }
  std::span<const std::byte> Take(std::int64_t size) {
    const auto length = static_cast<std::size_t>(size);
    return std::span(bytes_).subspan(random_() % (bytes_.size() - length), length);
  }

 private:
  std::mt19937 random_;
  std::vector<std::byte> bytes_;
};

void Note(SampleFiles& files, const std::string& path) {
  files.shards.push_back(path);
  files.file_bytes += static_cast<std::int64_t>(std::filesystem::file_size(path));
}

std::string Numbered(const std::string& directory, std::int64_t number, const char* suffix) {
  char name[32];
  std::snprintf(name, sizeof(name), "%06lld%s", static_cast<long long>(number), suffix);
  return directory + "/" + name;
}

}  // namespace

SampleFiles MakeTars(const std::string& directory, std::int64_t total_bytes, std::int64_t low,
                     std::int64_t high) {
  std::filesystem::create_directories(directory);
  SampleFiles files{.directory = directory};
  Noise noise(1);
  std::unique_ptr<ShardWriter> writer;
  std::string path;
  const auto finish = [&] {
    if (!writer) return;
    ThrowOnError(writer->Commit());
    writer.reset();
    Note(files, path);
  };
  while (files.payload_bytes < total_bytes) {
    if (writer && writer->size_bytes() >= kShardBytes) finish();
    if (!writer) {
      path = Numbered(directory, std::ssize(files.shards), ".tar");
      writer = ThrowOnError(CreateShard(path, {.format = "webdataset"}));
    }
    const std::int64_t size = noise.Size(low, high);
    Sample sample{.key = Numbered("s", files.samples, "")};
    sample.fields.push_back({.name = "bin", .value = ByteView(noise.Take(size), nullptr)});
    ThrowOnError(writer->Append(sample));
    files.payload_bytes += size;
    ++files.samples;
  }
  finish();
  ::sync();
  return files;
}

SampleFiles MakeFolder(const std::string& directory, std::int64_t count) {
  SampleFiles files{.directory = directory};
  Noise noise(2);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string folder = Numbered(directory, i / 1000, "");
    if (i % 1000 == 0) std::filesystem::create_directories(folder);
    const std::int64_t size = noise.Size(1 << 10, 3 << 10);
    const auto bytes = noise.Take(size);
    const std::string path = Numbered(folder, i, ".bin");
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), size);
    files.shards.push_back(path);
    files.payload_bytes += size;
    ++files.samples;
  }
  files.file_bytes = files.payload_bytes;
  ::sync();
  return files;
}

SampleFiles MakeManyShards(const std::string& directory, std::int64_t count) {
  std::filesystem::create_directories(directory);
  SampleFiles files{.directory = directory};
  Noise noise(3);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string path = Numbered(directory, i, ".tar");
    auto writer = ThrowOnError(CreateShard(path, {.format = "webdataset"}));
    for (int j = 0; j < 4; ++j) {
      Sample sample{.key = Numbered("s", files.samples++, "")};
      sample.fields.push_back({.name = "bin", .value = ByteView(noise.Take(4096), nullptr)});
      ThrowOnError(writer->Append(sample));
    }
    ThrowOnError(writer->Commit());
    Note(files, path);
  }
  return files;
}

void MakeTokens(const std::string& directory, std::int64_t count) {
  std::filesystem::create_directories(directory);
  auto writer = ThrowOnError(TokenFileWriter::Create(
      directory + "/tokens.tokens", {.dtype = DType::kUInt16, .vocabulary_size = 50'000}));
  std::ofstream raw(directory + "/tokens.u16", std::ios::binary);
  std::mt19937 random(4);
  std::vector<std::uint32_t> wide(1 << 20);
  std::vector<std::uint16_t> narrow(wide.size());
  for (std::int64_t done = 0; done < count; done += std::ssize(wide)) {
    for (std::size_t i = 0; i < wide.size(); ++i) {
      wide[i] = static_cast<std::uint32_t>(random() % 50'000);
      narrow[i] = static_cast<std::uint16_t>(wide[i]);
    }
    ThrowOnError(writer.Append(wide));
    raw.write(reinterpret_cast<const char*>(narrow.data()), std::ssize(narrow) * 2);
  }
  ThrowOnError(writer.Commit().status());
  raw.close();
  ::sync();
}

SampleFiles MdsShards(const std::string& directory) {
  SampleFiles files{.directory = directory};
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".mds") files.shards.push_back(entry.path().string());
  }
  std::sort(files.shards.begin(), files.shards.end());
  for (const std::string& path : files.shards) {
    files.file_bytes += static_cast<std::int64_t>(std::filesystem::file_size(path));
  }
  ::sync();
  return files;
}

void DropFromCache(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

bool DropAllCaches() {
  ::sync();
  const int fd = ::open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool is_done = ::write(fd, "3", 1) == 1;
  ::close(fd);
  return is_done;
}

void Warm(const std::vector<std::string>& paths) {
  std::vector<char> block(1 << 20);
  for (const std::string& path : paths) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    while (::read(fd, block.data(), block.size()) > 0) {
    }
    ::close(fd);
  }
}

}  // namespace ait::benchmarks
