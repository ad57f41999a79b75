// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_HTTP_STORAGE_H_
#define AIT_DATA_STORAGE_HTTP_STORAGE_H_

// Objects of web servers, read by ranges: "http://…" and "https://…".
//
//   auto web = HttpStorage::Create({});
//   auto shard = (*web)->Open("https://data.example.org/train/shard-00000.tar");
//
// `Open` asks for the size and the ETag. Each read then asks for its own range, in parts of
// `part_bytes` of which several are under way at once, over connections that are kept. An answer
// counts only if it is the range asked for, of an object of the same size and ETag, and complete;
// else it is asked for again or is an error: see docs/remote-data.md. A server that knows no ranges
// is read from the front, up to `max_skip_bytes` before what was asked for.
//
// Proxies are taken from the environment as curl does (https_proxy, no_proxy). libcurl is the
// transport; without it `Create` returns Unimplemented. **Fork.** A child may read what its parent
// opened: it makes connections of its own. Its parent's streams are errors in it.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/storage/retry.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {

/// What all remote storages have in common.
struct HttpOptions {
  /// Reads are cut at multiples of this; 64 KiB to 1 GiB.
  std::int64_t part_bytes = std::int64_t{8} << 20;
  /// Requests under way at the same time, of all threads together; 1 to 1024. About so many
  /// connections are kept, and one for each thread that reads.
  int connections = 16;
  std::chrono::milliseconds connect_timeout{10'000};
  /// A request that brings less than `min_bytes_per_second` over this long is tried again.
  std::chrono::milliseconds stall_timeout{20'000};
  std::int64_t min_bytes_per_second = 1024;
  /// How much of an answer may be thrown away where a server ignores ranges.
  std::int64_t max_skip_bytes = std::int64_t{64} << 20;
  RetryOptions retry = {};
  /// Certificates (PEM) that servers are checked against; empty: those of the system.
  std::string ca_file = {};
};

struct HttpStorageOptions {
  HttpOptions http = {};
  /// Sent with each request to the host of the URL, such as "Authorization: Bearer …"; not to hosts
  /// that it redirects to. They never appear in messages.
  std::vector<std::string> headers = {};
};

class HttpStorage final : public Storage {
 public:
  /// **Errors.** InvalidArgument: an option out of its range; Unimplemented: built without libcurl.
  static StatusOr<std::shared_ptr<HttpStorage>> Create(const HttpStorageOptions& options);
  ~HttpStorage() override;

  std::string name() const override { return "web servers by HTTP"; }
  StatusOr<std::shared_ptr<const StoredObject>> Open(const std::string& url) const override;
  StatusOr<ObjectInfo> Stat(const std::string& url) const override;
  /// Unimplemented: web servers have no common way to list.
  Status List(const std::string& prefix,
              const std::function<Status(const ObjectInfo&)>& visit) const override;

 private:
  struct Impl;
  explicit HttpStorage(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_HTTP_STORAGE_H_
