// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "ait/base/durable_file.h"
#include "data/corpus_directory_internal.h"
#include "data/json_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::string_view kShardPrefix = "shard-";
constexpr std::string_view kShardSuffix = ".tokens";
constexpr std::string_view kPartialSuffix = ".partial";  // what a killed DurableFile leaves

bool IsOurs(std::string_view name) {
  if (name == StrCat(kManifestName, kPartialSuffix)) return true;
  return name.starts_with(kShardPrefix) &&
         (name.ends_with(kShardSuffix) || name.ends_with(StrCat(kShardSuffix, kPartialSuffix)));
}

}  // namespace

StatusOr<CorpusDirectory> CorpusDirectory::Lock(const std::string& path) {
  AIT_RETURN_IF_ERROR(MakeDirectoryDurably(path));
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoError(errno, "cannot open directory ", path);
  CorpusDirectory directory(path, fd);
  // File systems without locks say so; then two processes at once are the user's care.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return UnavailableError("another process is packing into ", path, "; wait for it to end");
  }
  return directory;
}

CorpusDirectory::CorpusDirectory(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

CorpusDirectory::CorpusDirectory(CorpusDirectory&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

CorpusDirectory::~CorpusDirectory() {
  if (fd_ >= 0) ::close(fd_);
}

void CorpusDirectory::RemoveStale(const Manifest* manifest) const {
  std::error_code ignored;
  std::vector<std::filesystem::path> stale;
  for (std::filesystem::directory_iterator entry(path_, ignored), end; entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    const bool is_listed = manifest != nullptr &&
                           std::ranges::any_of(manifest->shards, [&](const Manifest::Shard& shard) {
                             return shard.file == name;
                           });
    if (IsOurs(name) && !is_listed) stale.push_back(entry->path());
  }
  for (const std::filesystem::path& file : stale) std::filesystem::remove(file, ignored);
}

std::string ShardName(std::uint64_t corpus_digest, std::int64_t number) {
  const std::string digits = StrCat(number);
  return StrCat(kShardPrefix, HexDigits(corpus_digest, 16), "-",
                std::string(5 - std::min<std::size_t>(digits.size(), 5), '0'), digits,
                kShardSuffix);
}

}  // namespace internal
}  // namespace ait::inline v0
