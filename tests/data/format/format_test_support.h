// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_DATA_FORMAT_FORMAT_TEST_SUPPORT_H_
#define AIT_TESTS_DATA_FORMAT_FORMAT_TEST_SUPPORT_H_

// Shards for tests: a storage in memory, and tars put together one header at a time, so that a
// test does not read what our own writer wrote.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/data/format/formats.h"
#include "support/status_matchers.h"

namespace ait::testing {

/// Objects in memory that can be replaced, with the reads counted.
class MapStorage final : public Storage {
 public:
  void Put(const std::string& url, std::string bytes) {
    const std::scoped_lock lock(mutex_);
    objects_[url] = MemoryObject(url, ByteView::Copy(bytes), StrCat("v", ++versions_));
  }
  void Remove(const std::string& url) {
    const std::scoped_lock lock(mutex_);
    objects_.erase(url);
  }

  std::string name() const override { return "memory"; }
  StatusOr<std::shared_ptr<const StoredObject>> Open(const std::string& url) const override {
    const std::scoped_lock lock(mutex_);
    const auto found = objects_.find(url);
    if (found == objects_.end()) return NotFoundError(url, " does not exist");
    return std::make_shared<Counting>(found->second, *this);
  }
  StatusOr<ObjectInfo> Stat(const std::string& url) const override {
    AIT_ASSIGN_OR_RETURN(const auto object, Open(url));
    return object->info();
  }
  Status List(const std::string& prefix,
              const std::function<Status(const ObjectInfo&)>& visit) const override {
    for (const auto& [url, object] : objects_) {
      if (url.starts_with(prefix)) AIT_RETURN_IF_ERROR(visit(object->info()));
    }
    return OkStatus();
  }

  mutable std::atomic<std::int64_t> read_count = 0;
  mutable std::atomic<std::int64_t> read_bytes = 0;

 private:
  class Counting final : public StoredObject {
   public:
    Counting(std::shared_ptr<const StoredObject> object, const MapStorage& storage)
        : object_(std::move(object)), storage_(storage) {}
    const ObjectInfo& info() const override { return object_->info(); }
    Status ReadAt(std::int64_t offset_bytes, std::span<std::byte> out) const override {
      ++storage_.read_count;
      storage_.read_bytes += static_cast<std::int64_t>(out.size());
      return object_->ReadAt(offset_bytes, out);
    }

   private:
    std::shared_ptr<const StoredObject> object_;
    const MapStorage& storage_;
  };

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const StoredObject>> objects_;
  int versions_ = 0;
};

/// One header block.
struct TarEntry {
  std::string name;
  std::string data = {};
  char type = '0';
  std::string link = {};
  std::string size_field = {};             // 12 bytes in place of the size of `data`
  std::string magic = {"ustar\00000", 8};  // GNU: "ustar  \0"
  std::string prefix = {};
};

inline std::string TarHeader(const TarEntry& entry) {
  std::string block(512, '\0');
  block.replace(0, entry.name.size(), entry.name);
  block.replace(100, 7, "0000644");
  char size[16];
  std::snprintf(size, sizeof(size), "%011llo", static_cast<unsigned long long>(entry.data.size()));
  block.replace(124, 11, size);
  if (!entry.size_field.empty()) block.replace(124, 12, entry.size_field);
  block.replace(136, 11, "00000000000");
  block.replace(148, 8, "        ");
  block[156] = entry.type;
  block.replace(157, entry.link.size(), entry.link);
  block.replace(257, 8, entry.magic);
  block.replace(345, entry.prefix.size(), entry.prefix);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  char text[16];
  std::snprintf(text, sizeof(text), "%06o", sum);
  block.replace(148, 7, std::string_view(text, 7));
  return block;
}

inline std::string TarMemberBytes(const TarEntry& entry) {
  std::string bytes = TarHeader(entry) + entry.data;
  bytes.resize((bytes.size() + 511) / 512 * 512, '\0');
  return bytes;
}

inline std::string TarBytes(const std::vector<TarEntry>& entries, std::size_t end_blocks = 2) {
  std::string bytes;
  for (const TarEntry& entry : entries) bytes += TarMemberBytes(entry);
  bytes.append(512 * end_blocks, '\0');
  return bytes;
}

/// "23 path=some/long/name\n"
inline std::string PaxRecord(std::string_view key, std::string_view value) {
  std::size_t length = key.size() + value.size() + 3;
  length += std::to_string(length + 1).size();
  while (std::to_string(length).size() + key.size() + value.size() + 3 != length) ++length;
  return StrCat(length, " ", key, "=", value, "\n");
}

/// A sample as text: "key{name=value,name=value}".
inline std::string Shown(const Sample& sample) {
  std::string shown = sample.key + "{";
  for (const SampleField& field : sample.fields) {
    if (shown.back() != '{') shown += ',';
    shown += StrCat(field.name, "=", field.value.text());
  }
  return shown + "}";
}

/// All samples of a shard by its table; or the error.
inline StatusOr<std::vector<std::string>> ShownByRecord(const ShardReader& shard) {
  std::vector<std::string> shown;
  for (std::int64_t i = 0; i < shard.record_count(); ++i) {
    AIT_ASSIGN_OR_RETURN(const Sample sample, shard.ReadRecord(i));
    shown.push_back(Shown(sample));
  }
  return shown;
}

/// All samples of a stream.
inline StatusOr<std::vector<std::string>> ShownOf(SampleStream& stream) {
  std::vector<std::string> shown;
  Sample sample;
  while (true) {
    AIT_ASSIGN_OR_RETURN(const bool is_there, stream.Next(sample));
    if (!is_there) return shown;
    shown.push_back(Shown(sample));
  }
}

}  // namespace ait::testing

#endif  // AIT_TESTS_DATA_FORMAT_FORMAT_TEST_SUPPORT_H_
