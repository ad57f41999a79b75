// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_SUPPORT_HTTP_FAULT_SERVER_H_
#define AIT_TESTS_SUPPORT_HTTP_FAULT_SERVER_H_

// A web server and S3 look-alike on 127.0.0.1 that misbehaves when told to.
//
//   HttpFaultServer server;
//   server.Put("/bucket/a.tar", bytes);
//   server.Add({.kind = HttpFault::Kind::kStatus, .times = 2, .status = 503});
//   …                                        // the next two requests get 503, then all is well
//   EXPECT_EQ(server.request_count(), 3);
//
// Objects lie in memory under their decoded paths. As S3 it knows objects, ranges, If-Match, lists
// (version 2), uploads in parts, and the metadata service of instances (IMDSv2); with keys set it
// checks the signature of each request, by code of its own that starts from the bytes received.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ait::testing {

struct HttpFault {
  enum class Kind {
    kStatus,       // answers `status` with `body` and `headers`
    kDropBefore,   // closes the connection instead of answering
    kDropAt,       // closes it after byte `at_byte` of the body
    kStallBefore,  // never answers
    kStallAt,      // sends `at_byte` bytes of the body and no more
    kDelay,        // answers `delay` later
    kTrickle,      // sends a byte each `delay`
    kTruncate,     // sends `at_byte` bytes of the body as if they were all
    kCorrupt,      // flips a bit of byte `at_byte` of the body
    kWrongEtag,    // says another ETag
    kNoEtag,       // says none
    kWrongRange,   // says and sends the range one byte later
    kIgnoreRange,  // sends the whole object
    kIgnoreMatch,  // does not look at If-Match
    kRedirect,     // sends to `location`
    kChange,       // another object of this size lies there from now on
    kGarbage,      // answers what is not HTTP
  };
  Kind kind = Kind::kStatus;
  int times = 1;              // requests it happens to; −1: to all
  int after = 0;              // requests it lets pass before
  std::string method = {};    // only these; empty: all
  std::string contains = {};  // only targets that contain this
  int status = 503;
  std::string body = {};
  std::vector<std::string> headers = {};
  std::int64_t at_byte = 0;
  std::chrono::milliseconds delay{50};
  std::string location = {};
};

struct HttpFaultServerOptions {
  /// With an access key, requests must be signed with it.
  std::string access_key_id = {};
  std::string secret_access_key = {};
  std::string session_token = {};
  std::string region = "us-east-1";
  std::string bucket_host_suffix = {};  // "localhost": takes "bucket.localhost" for a bucket
  int list_page = 1000;
  bool list_encodes_urls = true;
  bool sends_last_modified = false;
  std::vector<std::string> object_headers = {};  // "name: value", with each object
  bool knows_head = true;
  bool knows_ranges = true;
  /// IMDSv2: the JSON of credentials for its one role; empty: no role.
  std::function<std::string()> instance_credentials = {};
};

struct HttpSeen {
  std::string method;
  std::string target;                          // as sent
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  int status = 0;  // of the answer; 0: none
};

class HttpFaultServer {
 public:
  explicit HttpFaultServer(HttpFaultServerOptions options = {});
  ~HttpFaultServer();
  HttpFaultServer(const HttpFaultServer&) = delete;
  HttpFaultServer& operator=(const HttpFaultServer&) = delete;

  int port() const;
  std::string url() const;  // "http://127.0.0.1:PORT"

  void Put(const std::string& path, std::string bytes);
  std::string Get(const std::string& path) const;  // "" if there is none
  std::vector<std::string> paths() const;
  void Remove(const std::string& path);

  /// Later faults are looked at first.
  void Add(HttpFault fault);
  void ClearFaults();
  void Forget();  // requests seen so far

  int request_count() const;
  int connection_count() const;
  std::vector<HttpSeen> requests() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::testing

#endif  // AIT_TESTS_SUPPORT_HTTP_FAULT_SERVER_H_
