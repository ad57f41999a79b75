// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_SUPPORT_HTTP_EXCHANGE_INTERNAL_H_
#define AIT_TESTS_SUPPORT_HTTP_EXCHANGE_INTERNAL_H_

// What the parts of the fault server share.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/http_fault_server.h"

namespace ait::testing {

struct HttpReply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  // Of an object, of which `body` is the range [first, first + size).
  bool is_object = false;
  std::int64_t first = 0;
  std::int64_t object_size = 0;
  std::string etag = {};
};

struct ServedObjects {
  mutable std::mutex mutex;
  std::map<std::string, std::string> objects;                 // by decoded path "/bucket/key"
  std::map<std::string, std::map<int, std::string>> uploads;  // by upload id
  int next_upload = 0;
};

std::string Md5Etag(std::string_view bytes);  // with its quotes
std::string DecodePercent(std::string_view text);
/// The query of a target, decoded; what has no '=' has an empty value.
std::map<std::string, std::string> QueryOf(std::string_view target);

/// The answer of a server without faults. `fault` may turn off parts of it.
HttpReply AnswerRequest(const HttpFaultServerOptions& options, ServedObjects& objects,
                        const HttpSeen& seen, const HttpFault* fault);

/// The reason why the signature is not accepted, as S3 names it; empty: it is.
std::string RefuseSignature(const HttpFaultServerOptions& options, const HttpSeen& seen);

}  // namespace ait::testing

#endif  // AIT_TESTS_SUPPORT_HTTP_EXCHANGE_INTERNAL_H_
