// SPDX-License-Identifier: Apache-2.0
#include "data/storage/instance_credentials_internal.h"

#include <mutex>
#include <utility>

#include "ait/memory/fork_safe_mutex.h"
#include "data/storage/http_client_internal.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::system_clock;

constexpr std::string_view kRoles = "/latest/meta-data/iam/security-credentials/";
constexpr auto kRefreshBefore = std::chrono::minutes(10);
constexpr auto kTryAgainAfter = std::chrono::minutes(1);

// A request whose whole answer is a short text.
class TextCall final : public HttpCall {
 public:
  TextCall(std::string what, HttpRequest request)
      : what_(std::move(what)), request_(std::move(request)) {}
  std::string_view what() const override { return what_; }
  StatusOr<HttpRequest> Prepare() override { return request_; }
  HttpVerdict End(const HttpAnswer& answer) override {
    if (answer.status != 200) return JudgeRefusal(what_, answer, {});
    text = answer.body;
    return HttpVerdict::Done(OkStatus());
  }
  std::string text;

 private:
  const std::string what_;
  const HttpRequest request_;
};

class FromInstance final : public AwsCredentialSource {
 public:
  FromInstance(std::string endpoint, std::shared_ptr<HttpClient> client)
      : endpoint_(std::move(endpoint)), client_(std::move(client)) {}

  std::string name() const override { return "the metadata service of the instance"; }

  ~FromInstance() override { LeaveParents(); }

  StatusOr<AwsCredentials> Get() override {
    Kept& kept = Mine();
    const std::scoped_lock lock(kept.mutex);
    AwsCredentials& current = kept.current;
    system_clock::time_point& refresh_at = kept.refresh_at;
    const auto now = system_clock::now();
    if (!current.is_anonymous() && now < refresh_at) return current;
    StatusOr<AwsCredentials> fresh = Ask();
    if (fresh.ok()) {
      current = *std::move(fresh);
      refresh_at =
          current.expires ? *current.expires - kRefreshBefore : system_clock::time_point::max();
      // Keys that end soon are used while they last, and asked for again now and then.
      if (refresh_at < now + kTryAgainAfter) refresh_at = now + kTryAgainAfter;
      if (current.expires && refresh_at > *current.expires) refresh_at = *current.expires;
      return current;
    }
    const bool is_valid = !current.is_anonymous() && current.expires && now < *current.expires;
    if (!is_valid) {
      return Annotate(fresh.status(),
                      "no keys for S3: none in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, none "
                      "in the profile, and the metadata service of the instance has none; for "
                      "public buckets, ask for anonymous access");
    }
    refresh_at = now + kTryAgainAfter;
    return current;
  }

  bool Forget() override {
    Kept& kept = Mine();
    const std::scoped_lock lock(kept.mutex);
    kept.refresh_at = {};
    return true;
  }

 private:
  // The lock is held while the service is asked: a forked child makes another.
  struct Kept {
    const int forks = ForkSafeMutex::forks();
    std::mutex mutex;
    AwsCredentials current;
    system_clock::time_point refresh_at;
  };
  void LeaveParents() {
    if (kept_ && kept_->forks != ForkSafeMutex::forks()) static_cast<void>(kept_.release());
  }
  Kept& Mine() {
    const std::scoped_lock lock(mutex_);
    LeaveParents();
    if (!kept_) kept_ = std::make_unique<Kept>();
    return *kept_;
  }

  StatusOr<std::string> Fetch(std::string_view method, std::string_view path,
                              std::string private_header) {
    const std::string url = StrCat(endpoint_, path);
    TextCall call(url, {.method = std::string(method),
                        .url = url,
                        .private_headers = {std::move(private_header)},
                        .use_proxy = false});
    HttpCall* pointer = &call;
    AIT_RETURN_IF_ERROR(client_->Run({&pointer, 1}));
    return std::move(call.text);
  }

  StatusOr<AwsCredentials> Ask() {
    AIT_ASSIGN_OR_RETURN(
        const std::string token,
        Fetch("PUT", "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 21600"));
    if (token.empty() || token.find_first_of("\r\n") != std::string::npos) {
      return UnavailableError(endpoint_, ": the token of the metadata service is none");
    }
    const std::string header = "X-aws-ec2-metadata-token: " + token;
    AIT_ASSIGN_OR_RETURN(std::string role, Fetch("GET", kRoles, header));
    role = role.substr(0, role.find_first_of("\r\n"));
    if (role.empty() || role.find_first_of(" /?#") != std::string::npos) {
      return NotFoundError(endpoint_, ": the instance has no role");
    }
    AIT_ASSIGN_OR_RETURN(const std::string json, Fetch("GET", StrCat(kRoles, role), header));
    StatusOr<AwsCredentials> credentials = ParseInstanceCredentials(json);
    return credentials.ok() ? std::move(credentials)
                            : Annotate(credentials.status(), StrCat(endpoint_, kRoles, role));
  }

  const std::string endpoint_;
  const std::shared_ptr<HttpClient> client_;
  ForkSafeMutex mutex_;
  std::unique_ptr<Kept> kept_;
};

}  // namespace

StatusOr<std::shared_ptr<AwsCredentialSource>> InstanceCredentials(
    const std::string& endpoint, std::chrono::milliseconds timeout) {
  HttpOptions options = {.connections = 1,
                         .connect_timeout = timeout,
                         .stall_timeout = timeout,
                         .retry = {.max_tries = 3, .deadline = 3 * timeout}};
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<HttpClient> client, HttpClient::Create(options));
  std::string base = endpoint;
  while (base.ends_with("/")) base.pop_back();
  return std::make_shared<FromInstance>(std::move(base), std::move(client));
}

}  // namespace ait::inline v0::internal
