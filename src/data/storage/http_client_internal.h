// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_HTTP_CLIENT_INTERNAL_H_
#define AIT_DATA_STORAGE_HTTP_CLIENT_INTERNAL_H_

// Requests over HTTP, several at a time, each with its tries: the one user of libcurl.
//
// A `HttpSession` runs requests in the thread that calls it and keeps their connections; sessions
// are lent by a `HttpClient`, which hands the one that was used last to the next who asks.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/data/storage/http_storage.h"

namespace ait::inline v0 {
namespace internal {

struct HttpRequest {
  std::string method = "GET";
  std::string url;                           // percent-encoded
  std::vector<std::string> headers;          // "name: value"
  std::vector<std::string> private_headers;  // the same, but not for other hosts after a redirect
  std::span<const std::byte> body;           // of PUT and POST
  int max_redirects = 0;
  bool use_proxy = true;
  /// It may take this many times longer until it counts as stalled, and any byte counts: S3 joins
  /// the parts of an upload for minutes, and sends a space now and then.
  int patience = 1;
};

struct HttpAnswer {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;  // what the call did not take, up to HttpCall::body_limit
  /// The value of the first header of this name, given in lower case.
  std::optional<std::string_view> Find(std::string_view name) const;
};

/// What to do after an answer.
struct HttpVerdict {
  enum class Next { kDone, kRetry };
  Next next = Next::kDone;
  Status status = {};                 // of the call if it is done, or if no try is left
  std::chrono::milliseconds wait{0};  // at least this long (Retry-After)
  static HttpVerdict Done(Status status) { return {Next::kDone, std::move(status), {}}; }
  static HttpVerdict Retry(Status status) { return {Next::kRetry, std::move(status), {}}; }
};

/// What a call says of the body once it has seen status and headers.
enum class BodyUse {
  kTake,    // to `Take`
  kKeep,    // to HttpAnswer::body
  kRefuse,  // not wanted: the connection is given up
};

/// One request with its tries. Used by one session at a time.
class HttpCall {
 public:
  virtual ~HttpCall() = default;
  /// For messages: no credentials.
  virtual std::string_view what() const = 0;
  /// The request of the next try; an error ends the call.
  virtual StatusOr<HttpRequest> Prepare() = 0;
  /// Status and headers are there.
  virtual BodyUse Begin(const HttpAnswer&) { return BodyUse::kKeep; }
  enum class Taken { kMore, kEnough };
  virtual Taken Take(std::span<const std::byte>) { return Taken::kEnough; }
  /// The answer is complete, or as much of it as was wanted.
  virtual HttpVerdict End(const HttpAnswer& answer) = 0;
  virtual std::size_t body_limit() const { return 64 * 1024; }

  /// The outcome, once a session has returned it.
  const Status& status() const { return status_; }
  int tries() const { return tries_; }

 private:
  friend class HttpClient;
  friend class HttpSession;
  Status status_;
  int tries_ = 0;
};

class HttpSession {
 public:
  ~HttpSession();
  HttpSession(const HttpSession&) = delete;
  HttpSession& operator=(const HttpSession&) = delete;

  /// Adds a call, which outlives the session's use of it.
  void Add(HttpCall* call);
  /// Works until a call has ended and returns it; null if none is left, or after `Interrupt`.
  HttpCall* RunUntilOneEnds();
  /// Ends all calls as they are; their status is Cancelled.
  void Clear();
  /// Makes `RunUntilOneEnds` return null until `Clear`. From any thread.
  void Interrupt();

 private:
  friend class HttpClient;
  struct Impl;
  explicit HttpSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// **Thread-safety.** All calls may come from any thread. **Fork.** A child has connections of its
/// own; a session that was lent before the fork is not used in it.
class HttpClient : public std::enable_shared_from_this<HttpClient> {
 public:
  static StatusOr<std::shared_ptr<HttpClient>> Create(const HttpOptions& options);
  ~HttpClient();

  const HttpOptions& options() const;
  /// A session that goes back when it is let go of.
  StatusOr<std::shared_ptr<HttpSession>> Borrow();
  /// Whether the calls that are left are of use once one has failed.
  enum class AfterError { kGoOn, kStop };
  /// Runs calls to their end; each has its own status. The result is the first error of them; those
  /// that `kStop` gave up are Cancelled.
  Status Run(std::span<HttpCall* const> calls, AfterError after_error = AfterError::kGoOn);

 private:
  struct State;
  struct Impl;
  void TakeBack(std::unique_ptr<HttpSession> session);
  friend class HttpSession;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Adds to an error what a wrong answer said: status, and the text of its body if it is short text.
std::string Describe(const HttpAnswer& answer);

/// The wait that an answer asks for; 0 if it says nothing of it.
std::chrono::milliseconds RetryAfter(const HttpAnswer& answer);

/// What an answer means that is not the one hoped for, by its status alone.
HttpVerdict JudgeRefusal(std::string_view what, const HttpAnswer& answer, std::string_view detail);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_HTTP_CLIENT_INTERNAL_H_
