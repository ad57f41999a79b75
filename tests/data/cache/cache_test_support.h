// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_DATA_CACHE_CACHE_TEST_SUPPORT_H_
#define AIT_TESTS_DATA_CACHE_CACHE_TEST_SUPPORT_H_

// Storages to put a cache on: objects in memory with faults on request, and files whose reads are
// noted in a file, so that those of several processes can be counted.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ait/data/cache/tiered_cache.h"
#include "ait/data/storage/storage.h"

namespace ait::testing {

inline std::string RandomText(std::size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

/// Objects in memory. `Put` replaces them; objects that are open then fail with Aborted.
class FakeStorage final : public Storage {
 public:
  std::string name() const override { return "fake"; }

  void Put(const std::string& url, std::string bytes, std::string version = "1") {
    const std::lock_guard lock(mutex_);
    objects_[url] = {std::move(bytes), std::move(version)};
  }

  StatusOr<std::shared_ptr<const StoredObject>> Open(const std::string& url) const override {
    if (on_open) on_open(url);
    AIT_ASSIGN_OR_RETURN(ObjectInfo info, Stat(url));
    return std::make_shared<Object>(*this, info);
  }
  StatusOr<ObjectInfo> Stat(const std::string& url) const override {
    const std::lock_guard lock(mutex_);
    if (stated_bytes != 0) return ObjectInfo{url, stated_bytes, "1"};
    const auto found = objects_.find(url);
    if (found == objects_.end()) return NotFoundError("no object ", url);
    return ObjectInfo{url, static_cast<std::int64_t>(found->second.first.size()),
                      found->second.second};
  }
  Status List(const std::string& prefix,
              const std::function<Status(const ObjectInfo&)>& visit) const override {
    std::vector<ObjectInfo> found;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [url, object] : objects_) {
        if (url.starts_with(prefix)) {
          const auto bytes = static_cast<std::int64_t>(object.first.size());
          found.push_back({url, stated_bytes != 0 ? stated_bytes : bytes, object.second});
        }
      }
    }
    for (const ObjectInfo& info : found) AIT_RETURN_IF_ERROR(visit(info));
    return OkStatus();
  }

  mutable std::atomic<int> reads{0};
  mutable std::atomic<std::int64_t> bytes{0};
  /// Called before each read.
  std::function<Status(const std::string& url, std::int64_t offset)> on_read;
  /// Called before each Open.
  std::function<void(const std::string& url)> on_open;
  /// What it says of the size of every object, unless 0.
  std::int64_t stated_bytes = 0;
  /// Objects that are open give the new bytes when they are replaced, as files over NFS do.
  bool hides_changes = false;

 private:
  class Object final : public StoredObject {
   public:
    Object(const FakeStorage& storage, ObjectInfo info) : storage_(storage), info_(info) {}
    const ObjectInfo& info() const override { return info_; }
    Status ReadAt(std::int64_t offset, std::span<std::byte> out) const override {
      AIT_RETURN_IF_ERROR(CheckRange(info_, offset, static_cast<std::int64_t>(out.size())));
      ++storage_.reads;
      storage_.bytes += static_cast<std::int64_t>(out.size());
      if (storage_.on_read) AIT_RETURN_IF_ERROR(storage_.on_read(info_.url, offset));
      const std::lock_guard lock(storage_.mutex_);
      const auto& [text, version] = storage_.objects_.at(info_.url);
      if (version != info_.version && !storage_.hides_changes)
        return AbortedError(info_.url, " has changed");
      std::copy_n(text.data() + offset, out.size(), reinterpret_cast<char*>(out.data()));
      return OkStatus();
    }

   private:
    const FakeStorage& storage_;
    const ObjectInfo info_;
  };

  mutable std::mutex mutex_;
  std::map<std::string, std::pair<std::string, std::string>> objects_;
};

/// Files below a directory; a read adds a line "NAME OFFSET LENGTH" to `log`, after `delay`.
class FileStorage final : public Storage {
 public:
  FileStorage(std::string root, std::string log, std::chrono::milliseconds delay = {})
      : root_(std::move(root)), log_(std::move(log)), delay_(delay) {}

  std::string name() const override { return "files of " + root_; }

  StatusOr<std::shared_ptr<const StoredObject>> Open(const std::string& url) const override {
    AIT_ASSIGN_OR_RETURN(const ObjectInfo info, Stat(url));
    return std::make_shared<Object>(*this, info);
  }
  StatusOr<ObjectInfo> Stat(const std::string& url) const override {
    struct stat info{};
    if (::stat((root_ + "/" + url).c_str(), &info) != 0) return ErrnoError(errno, url);
    return ObjectInfo{url, info.st_size,
                      StrCat(info.st_ino, "-", info.st_mtim.tv_sec, "-", info.st_mtim.tv_nsec)};
  }
  Status List(const std::string& prefix,
              const std::function<Status(const ObjectInfo&)>& visit) const override {
    std::vector<std::string> names;
    for (const auto& file : std::filesystem::recursive_directory_iterator(root_)) {
      std::string name = file.path().string().substr(root_.size() + 1);
      if (file.is_regular_file() && name.starts_with(prefix)) names.push_back(std::move(name));
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      AIT_ASSIGN_OR_RETURN(const ObjectInfo info, Stat(name));
      AIT_RETURN_IF_ERROR(visit(info));
    }
    return OkStatus();
  }

 private:
  class Object final : public StoredObject {
   public:
    Object(const FileStorage& storage, ObjectInfo info) : storage_(storage), info_(info) {}
    const ObjectInfo& info() const override { return info_; }
    Status ReadAt(std::int64_t offset, std::span<std::byte> out) const override {
      AIT_RETURN_IF_ERROR(CheckRange(info_, offset, static_cast<std::int64_t>(out.size())));
      const std::string line = StrCat(info_.url, " ", offset, " ", out.size(), "\n");
      const int log =
          ::open(storage_.log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
      const bool noted = ::write(log, line.data(), line.size()) > 0;
      ::close(log);
      if (!noted) return InternalError("no log");
      std::this_thread::sleep_for(storage_.delay_);
      std::ifstream in(storage_.root_ + "/" + info_.url, std::ios::binary);
      in.seekg(offset);
      in.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
      return in ? OkStatus() : DataLossError(info_.url, " is shorter");
    }

   private:
    const FileStorage& storage_;
    const ObjectInfo info_;
  };

  const std::string root_, log_;
  const std::chrono::milliseconds delay_;
};

/// Reads a range as text; the error as text if there is one.
inline std::string ReadText(const StoredObject& object, std::int64_t offset, std::int64_t length) {
  std::string text(static_cast<std::size_t>(length), '?');
  const Status status = object.ReadAt(offset, std::as_writable_bytes(std::span(text)));
  return status.ok() ? text : status.ToString();
}

inline std::string ReadText(const Storage& storage, const std::string& url) {
  const auto object = storage.Open(url);
  if (!object.ok()) return object.status().ToString();
  return ReadText(**object, 0, (*object)->info().size_bytes);
}

/// The files of entries in a directory of the cache, sorted.
inline std::vector<std::string> EntryFiles(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(directory + "/objects", error)) {
    if (file.is_regular_file(error)) files.push_back(file.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// What the entries take on the disk. Other processes may remove them meanwhile.
inline std::int64_t AllocatedBytes(const std::string& directory) {
  std::int64_t bytes = 0;
  for (const std::string& file : EntryFiles(directory)) {
    struct stat info{};
    if (::stat(file.c_str(), &info) == 0) bytes += info.st_blocks * 512;
  }
  return bytes;
}

/// Waits until as many threads as asked for have come, at most ten seconds.
class Meeting {
 public:
  explicit Meeting(int threads) : missing_(threads) {}
  bool Come() {
    std::unique_lock lock(mutex_);
    if (--missing_ <= 0) changed_.notify_all();
    return changed_.wait_for(lock, std::chrono::seconds(10), [this] { return missing_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int missing_;
};

/// A directory on a tmpfs, or an empty name where there is none.
class SharedMemoryDir {
 public:
  SharedMemoryDir() {
    char name[] = "/dev/shm/ait-cache-test-XXXXXX";
    if (::mkdtemp(name) != nullptr) path_ = name;
  }
  ~SharedMemoryDir() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace ait::testing

#endif  // AIT_TESTS_DATA_CACHE_CACHE_TEST_SUPPORT_H_
