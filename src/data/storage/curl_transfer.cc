// SPDX-License-Identifier: Apache-2.0
#include "data/storage/curl_transfer_internal.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kMaxHeaderBytes = 256 * 1024;
constexpr long kReceiveBytes = 256 * 1024;

std::string_view Trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// A part of a parsed URL; empty if it has none.
std::string Part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return {};
  std::string copy(text);
  curl_free(text);
  return copy;
}

}  // namespace

Status UseCurl() {
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (code == CURLE_OK) return OkStatus();
  return UnimplementedError("libcurl cannot be used: ", curl_easy_strerror(code));
}

StatusOr<std::unique_ptr<CurlTransfer>> CurlTransfer::Create() {
  CURL* easy = curl_easy_init();
  if (easy == nullptr) return ResourceExhaustedError("no memory for a request of libcurl");
  return std::unique_ptr<CurlTransfer>(new CurlTransfer(easy));
}

Status CurlTransfer::Start(const HttpOptions& options, const HttpRequest& request,
                           const std::string& url, bool with_private_headers, HttpCall* call,
                           Time now) {
  CURL* const easy = easy_.get();
  curl_easy_reset(easy);
  headers_.reset();
  call_ = call;
  answer_ = {};
  begun_ = cut_ = false;
  use_ = BodyUse::kKeep;
  header_bytes_ = moved_bytes_ = window_bytes_ = 0;
  window_start_ = now;
  patience_ = request.patience;
  error_[0] = '\0';

  bool has_memory = true;
  const auto add = [&](const std::string& header) {
    curl_slist* list = curl_slist_append(headers_.get(), header.c_str());
    if (list == nullptr) {
      has_memory = false;
      return;
    }
    (void)headers_.release();
    headers_.reset(list);
  };
  for (const std::string& header : request.headers) add(header);
  if (with_private_headers) {
    for (const std::string& header : request.private_headers) add(header);
  }
  add("Accept-Encoding: identity");
  add("Expect:");
  if (!has_memory) return ResourceExhaustedError(call->what(), ": no memory for its headers");

  CURLcode code = CURLE_OK;
  const auto set = [&](CURLoption option, auto value) {
    if (code == CURLE_OK) code = curl_easy_setopt(easy, option, value);
  };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_BUFFERSIZE, kReceiveBytes);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
  set(CURLOPT_USERAGENT, "ait");
  set(CURLOPT_HTTPHEADER, headers_.get());
  set(CURLOPT_ERRORBUFFER, error_.data());
  set(CURLOPT_HEADERFUNCTION, &CurlTransfer::OnHeader);
  set(CURLOPT_HEADERDATA, static_cast<void*>(this));
  set(CURLOPT_WRITEFUNCTION, &CurlTransfer::OnBody);
  set(CURLOPT_WRITEDATA, static_cast<void*>(this));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &CurlTransfer::OnProgress);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(this));
  if (!options.ca_file.empty()) set(CURLOPT_CAINFO, options.ca_file.c_str());
  if (!request.use_proxy) set(CURLOPT_NOPROXY, "*");
  if (request.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (request.method == "PUT" || request.method == "POST") {
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_POSTFIELDS,
        request.body.empty() ? "" : reinterpret_cast<const char*>(request.body.data()));
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  } else if (request.method != "GET") {
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  if (code == CURLE_OK) return OkStatus();
  return InternalError(call->what(), ": libcurl refuses the request: ", curl_easy_strerror(code));
}

bool CurlTransfer::AddHeader(std::string_view line) {
  header_bytes_ += static_cast<std::int64_t>(line.size());
  moved_bytes_ += static_cast<std::int64_t>(line.size());
  if (header_bytes_ > kMaxHeaderBytes) return false;
  if (line.starts_with("HTTP/") && !begun_) {
    answer_ = {};  // what came before was "100 Continue"
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) return false;
    const std::string_view digits = line.substr(space + 1);
    return std::from_chars(digits.data(), digits.data() + digits.size(), answer_.status).ec ==
           std::errc();
  }
  const std::size_t colon = line.find(':');
  if (colon != std::string_view::npos && !begun_) {
    answer_.headers.emplace_back(Lower(Trim(line.substr(0, colon))), Trim(line.substr(colon + 1)));
  }
  return true;
}

std::size_t CurlTransfer::OnHeader(char* data, std::size_t, std::size_t size, void* self) {
  return static_cast<CurlTransfer*>(self)->AddHeader({data, size}) ? size : size + 1;
}

void CurlTransfer::BeginOnce() {
  if (begun_) return;
  begun_ = true;
  use_ = call_->Begin(answer_);
}

std::size_t CurlTransfer::OnBody(char* data, std::size_t, std::size_t size, void* self) {
  auto& transfer = *static_cast<CurlTransfer*>(self);
  transfer.BeginOnce();
  switch (transfer.use_) {
    case BodyUse::kTake:
      if (transfer.call_->Take(std::as_bytes(std::span(data, size))) == HttpCall::Taken::kMore) {
        return size;
      }
      break;
    case BodyUse::kKeep:
      transfer.answer_.body.append(
          data, std::min(size, transfer.call_->body_limit() - transfer.answer_.body.size()));
      if (transfer.answer_.body.size() < transfer.call_->body_limit()) return size;
      break;
    case BodyUse::kRefuse:
      break;
  }
  transfer.cut_ = true;
  return size + 1;
}

int CurlTransfer::OnProgress(void* self, curl_off_t, curl_off_t down, curl_off_t, curl_off_t up) {
  auto& transfer = *static_cast<CurlTransfer*>(self);
  transfer.moved_bytes_ = transfer.header_bytes_ + down + up;
  return 0;
}

bool CurlTransfer::IsAlive(const HttpOptions& options, Time now) {
  if (now < next_check(options)) return true;
  const double seconds = std::chrono::duration<double>(now - window_start_).count();
  const auto moved = static_cast<double>(moved_bytes_ - window_bytes_);
  window_bytes_ = moved_bytes_;
  window_start_ = now;
  if (patience_ > 1) return moved > 0;
  return moved > 0 && moved >= seconds * static_cast<double>(options.min_bytes_per_second);
}

HttpVerdict CurlTransfer::End(CURLcode code) {
  if (code == CURLE_OK || (code == CURLE_WRITE_ERROR && cut_)) {
    BeginOnce();
    return call_->End(answer_);
  }
  const char* const text = error_[0] != '\0' ? error_.data() : curl_easy_strerror(code);
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CRL_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return HttpVerdict::Done(
          FailedPreconditionError(call_->what(), ": ", text,
                                  "; if the server is the right one, name its certificate by "
                                  "ca_file"));
    case CURLE_URL_MALFORMAT:
      return HttpVerdict::Done(InvalidArgumentError(call_->what(), ": ", text));
    case CURLE_OUT_OF_MEMORY:
      return HttpVerdict::Done(ResourceExhaustedError(call_->what(), ": ", text));
    default:
      return HttpVerdict::Retry(UnavailableError(call_->what(), ": ", text));
  }
}

StatusOr<Redirect> FollowRedirect(const std::string& url, const std::string& location) {
  struct UrlFree {
    void operator()(CURLU* handle) const { curl_url_cleanup(handle); }
  };
  const std::unique_ptr<CURLU, UrlFree> from(curl_url()), to(curl_url());
  if (!from || !to) return ResourceExhaustedError("no memory for a redirect");
  constexpr unsigned kFlags = CURLU_URLENCODE | CURLU_PATH_AS_IS;
  if (curl_url_set(from.get(), CURLUPART_URL, url.c_str(), kFlags) != CURLUE_OK ||
      curl_url_set(to.get(), CURLUPART_URL, url.c_str(), kFlags) != CURLUE_OK ||
      curl_url_set(to.get(), CURLUPART_URL, location.c_str(), kFlags) != CURLUE_OK) {
    return FailedPreconditionError("it redirects to something that is not a URL");
  }
  const auto origin = [](CURLU* handle) {
    return Part(handle, CURLUPART_SCHEME) + "://" + Lower(Part(handle, CURLUPART_HOST)) + ":" +
           Part(handle, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  };
  const std::string scheme = Part(to.get(), CURLUPART_SCHEME);
  if ((scheme != "https" && scheme != "http") ||
      (scheme == "http" && Part(from.get(), CURLUPART_SCHEME) == "https")) {
    return FailedPreconditionError("it redirects from ", Part(from.get(), CURLUPART_SCHEME), " to ",
                                   scheme, ", which is not followed");
  }
  return Redirect{Part(to.get(), CURLUPART_URL), origin(from.get()) == origin(to.get())};
}

}  // namespace ait::inline v0::internal
