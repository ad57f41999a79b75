// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_DATA_STORAGE_HTTP_TEST_SUPPORT_H_
#define AIT_TESTS_DATA_STORAGE_HTTP_TEST_SUPPORT_H_

// A web server with faults on request, and a storage that reads from it.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "ait/data/storage/http_storage.h"
#include "support/http_fault_server.h"
#include "support/status_matchers.h"

namespace ait::testing {

inline constexpr std::size_t kPart = 64 * 1024;

inline std::string Counting(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + i / 251 + i / 70001);
  return text;
}

// Short times, so that faults do not cost a test its patience.
inline HttpOptions Fast() {
  return {.part_bytes = static_cast<std::int64_t>(kPart),
          .connections = 4,
          .connect_timeout = std::chrono::milliseconds(2'000),
          .stall_timeout = std::chrono::milliseconds(5'000),
          .retry = {.max_tries = 4,
                    .first_wait = std::chrono::milliseconds(1),
                    .max_wait = std::chrono::milliseconds(4),
                    .deadline = std::chrono::milliseconds(20'000)}};
}

class HttpFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.Put("/a", bytes_);
    storage_ = *HttpStorage::Create({.http = Fast()});
  }
  std::string Url(const std::string& path = "/a") const { return server_.url() + path; }
  // Where the test waits for stalls.
  void StallSoon(HttpFault::Kind kind) {
    if (kind != HttpFault::Kind::kStallBefore && kind != HttpFault::Kind::kStallAt &&
        kind != HttpFault::Kind::kTrickle)
      return;
    HttpOptions options = Fast();
    options.stall_timeout = std::chrono::milliseconds(700);
    storage_ = *HttpStorage::Create({.http = options});
  }
  // Opens the object and forgets the requests that this took.
  std::shared_ptr<const StoredObject> Open(const std::string& path = "/a") {
    auto object = storage_->Open(Url(path));
    EXPECT_OK(object);
    server_.Forget();
    return *object;
  }
  Status Read(const StoredObject& object, std::size_t offset, std::size_t length) {
    read_.assign(length, '?');
    return object.ReadAt(static_cast<std::int64_t>(offset),
                         std::as_writable_bytes(std::span(read_)));
  }
  int ranges() const { return server_.request_count(); }

  const std::string bytes_ = Counting(4 * kPart + 1000);
  HttpFaultServer server_;
  std::shared_ptr<HttpStorage> storage_;
  std::string read_;
};

}  // namespace ait::testing

#endif  // AIT_TESTS_DATA_STORAGE_HTTP_TEST_SUPPORT_H_
