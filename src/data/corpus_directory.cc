// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>

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

constexpr std::size_t kDigestDigits = 16;
constexpr std::size_t kNumberDigits = 5;  // at least

bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Takes the characters of `set` off the front; returns how many.
std::size_t TakeAll(std::string_view& text, std::string_view set) {
  const std::size_t count = std::min(text.find_first_not_of(set), text.size());
  text.remove_prefix(count);
  return count;
}

// True for exactly the names that a packing process gives: those of ShardName, and what it leaves
// when it is killed. Whatever else lies in the directory is the user's.
bool IsOurs(std::string_view name) {
  if (name == StrCat(kManifestName, kPartialSuffix)) return true;
  return TakePrefix(name, kShardPrefix) && TakeAll(name, "0123456789abcdef") == kDigestDigits &&
         TakePrefix(name, "-") && TakeAll(name, "0123456789") >= kNumberDigits &&
         TakePrefix(name, kShardSuffix) && (name.empty() || name == kPartialSuffix);
}

bool Lists(const Manifest* manifest, std::string_view name) {
  return manifest != nullptr &&
         std::ranges::any_of(manifest->shards,
                             [&](const Manifest::Shard& shard) { return shard.file == name; });
}

}  // namespace

StatusOr<CorpusDirectory> CorpusDirectory::Lock(const std::string& path) {
  AIT_RETURN_IF_ERROR(MakeDirectoryDurably(path));
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) return ErrnoError(errno, "cannot open directory ", path);
  // File systems without locks say so; then two processes at once are the user's care.
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return UnavailableError("another process is packing into ", path, "; wait for it to end");
  }
  return CorpusDirectory(path, std::move(fd));
}

void CorpusDirectory::RemoveStale(const Manifest& manifest) const {
  std::error_code ignored;
  std::vector<std::filesystem::path> stale;
  for (std::filesystem::directory_iterator entry(path_, ignored), end; entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (IsOurs(name) && !Lists(&manifest, name)) stale.push_back(entry->path());
  }
  for (const std::filesystem::path& file : stale) std::filesystem::remove(file, ignored);
}

void CorpusDirectory::RemoveAdded(const std::vector<std::string>& names) const {
  // A manifest may be in its place although writing it failed: not yet safe on the disk.
  const StatusOr<Manifest> manifest = ReadManifest(path_);
  std::error_code ignored;
  for (const std::string& name : names) {
    if (!Lists(manifest.ok() ? &*manifest : nullptr, name)) {
      std::filesystem::remove(StrCat(path_, "/", name), ignored);
    }
  }
}

std::string ShardName(std::uint64_t corpus_digest, std::int64_t number) {
  const std::string digits = StrCat(number);
  return StrCat(kShardPrefix, HexDigits(corpus_digest, kDigestDigits), "-",
                std::string(kNumberDigits - std::min(digits.size(), kNumberDigits), '0'), digits,
                kShardSuffix);
}

}  // namespace internal
}  // namespace ait::inline v0
