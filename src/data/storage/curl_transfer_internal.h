// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_CURL_TRANSFER_INTERNAL_H_
#define AIT_DATA_STORAGE_CURL_TRANSFER_INTERNAL_H_

// One try of a request: an easy handle of libcurl and what comes back through it.

#include <curl/curl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "data/storage/http_client_internal.h"

namespace ait::inline v0 {
namespace internal {

// CURL and CURLM are both void.
struct EasyFree {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct MultiFree {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
struct ListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

/// Initialises libcurl, once a process. **Errors.** Unimplemented: it cannot be used.
Status UseCurl();

class CurlTransfer {
 public:
  /// **Errors.** ResourceExhausted: no memory.
  static StatusOr<std::unique_ptr<CurlTransfer>> Create();

  /// Makes the handle ready for a try at `url`; `request` outlives the try.
  Status Start(const HttpOptions& options, const HttpRequest& request, const std::string& url,
               bool with_private_headers, HttpCall* call, Time now);
  CURL* easy() const { return easy_.get(); }

  /// False once the try has brought too little for too long.
  bool IsAlive(const HttpOptions& options, Time now);
  /// When to ask `IsAlive` again.
  Time next_check(const HttpOptions& options) const {
    return window_start_ + patience_ * options.stall_timeout;
  }

  /// What came of the try; `code` is what libcurl says of it.
  HttpVerdict End(CURLcode code);
  const HttpAnswer& answer() const { return answer_; }

 private:
  explicit CurlTransfer(CURL* easy) : easy_(easy) {}
  static std::size_t OnHeader(char* data, std::size_t, std::size_t size, void* self);
  static std::size_t OnBody(char* data, std::size_t, std::size_t size, void* self);
  static int OnProgress(void* self, curl_off_t, curl_off_t down, curl_off_t, curl_off_t up);
  bool AddHeader(std::string_view line);
  void BeginOnce();

  std::unique_ptr<CURL, EasyFree> easy_;
  std::unique_ptr<curl_slist, ListFree> headers_;
  HttpCall* call_ = nullptr;
  HttpAnswer answer_;
  int patience_ = 1;
  bool begun_ = false;
  bool cut_ = false;  // by us: the rest is not wanted
  BodyUse use_ = BodyUse::kKeep;
  std::int64_t header_bytes_ = 0;
  std::int64_t moved_bytes_ = 0;  // both ways
  std::int64_t window_bytes_ = 0;
  Time window_start_{};
  std::array<char, CURL_ERROR_SIZE> error_{};
};

/// Where a redirect leads. **Errors.** FailedPrecondition: nowhere, or from https to http.
struct Redirect {
  std::string url;
  bool same_origin = false;
};
StatusOr<Redirect> FollowRedirect(const std::string& url, const std::string& location);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_CURL_TRANSFER_INTERNAL_H_
