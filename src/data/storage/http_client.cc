// SPDX-License-Identifier: Apache-2.0
#include "data/storage/http_client_internal.h"

#include <curl/curl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <random>
#include <utility>

#include "ait/memory/fork_safe_mutex.h"
#include "data/storage/curl_transfer_internal.h"
#include "data/storage/http_date_internal.h"

namespace ait::inline v0::internal {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Duration kLongestPoll = std::chrono::seconds(1);

Status Check(const HttpOptions& options) {
  AIT_RETURN_IF_ERROR(ait::Check(options.retry));
  if (options.part_bytes < 64 * 1024 || options.part_bytes > (std::int64_t{1} << 30)) {
    return InvalidArgumentError("part_bytes is ", options.part_bytes,
                                "; 64 KiB to 1 GiB are possible");
  }
  if (options.connections < 1 || options.connections > 1024) {
    return InvalidArgumentError("connections is ", options.connections, "; 1 to 1024 are possible");
  }
  if (options.connect_timeout.count() <= 0 || options.stall_timeout.count() <= 0) {
    return InvalidArgumentError("connect_timeout is ", options.connect_timeout.count(),
                                " ms and stall_timeout ", options.stall_timeout.count(),
                                " ms; both are more than 0");
  }
  if (options.min_bytes_per_second < 0 || options.max_skip_bytes < 0) {
    return InvalidArgumentError("min_bytes_per_second is ", options.min_bytes_per_second,
                                " and max_skip_bytes ", options.max_skip_bytes,
                                "; both are 0 or more");
  }
  return OkStatus();
}

}  // namespace

// What the requests of one process share. A forked child makes another.
struct HttpClient::State {
  // One of the requests that may be under way at the same time.
  bool TryPermit(int most) {
    const std::scoped_lock lock(mutex);
    if (under_way >= most) return false;
    ++under_way;
    return true;
  }
  void ReturnPermit() {
    {
      const std::scoped_lock lock(mutex);
      --under_way;
    }
    permit_returned.notify_one();
  }
  void AwaitPermit(int most, Duration timeout) {
    std::unique_lock lock(mutex);
    permit_returned.wait_for(lock, timeout, [&] { return under_way < most; });
  }
  double Random() {
    const std::scoped_lock lock(mutex);
    return std::uniform_real_distribution<double>()(random);
  }

  const int forks = ForkSafeMutex::forks();
  std::mutex mutex;
  std::condition_variable permit_returned;
  int under_way = 0;
  std::minstd_rand random{
      std::random_device()()};                    // spreads tries in time; no result depends on it
  std::deque<std::unique_ptr<HttpSession>> idle;  // the one that was used last at the back
  std::atomic<int> lent = 0;
};

struct HttpClient::Impl {
  explicit Impl(HttpOptions with) : options(std::move(with)) {}
  ~Impl() { LeaveParents(); }

  // Connections are the parent's: bytes read from one, or its orderly end, would be missing there.
  void LeaveParents() {
    if (state && state->forks != ForkSafeMutex::forks()) static_cast<void>(state.release());
  }
  // Of this process.
  State& Mine() {
    const std::scoped_lock lock(mutex);
    LeaveParents();
    if (!state) state = std::make_unique<State>();
    return *state;
  }

  const HttpOptions options;

 private:
  ForkSafeMutex mutex;
  std::unique_ptr<State> state;
};

struct HttpSession::Impl {
  // A call, and the try of it that is under way.
  struct Job {
    HttpCall* call;
    HttpRequest request = {};
    std::string url = {};
    bool same_origin = true;
    int redirects = 0;
    bool redirected = false;  // the next try follows a redirect
    Time due{};
    Time added{};
    Deadline deadline = Deadline::Infinite();
    Status last = {};
    std::unique_ptr<CurlTransfer> transfer = {};
  };
  using Jobs = std::list<Job>;

  Impl(const HttpOptions& with, HttpClient::State& of)
      : options(with), shared(of), multi(curl_multi_init()) {}
  ~Impl() {
    for (Job& job : active) Detach(job);
  }

  // Connections are kept for the next requests: of each session its share, and never fewer than are
  // in use, which libcurl counts too.
  void KeepShare(std::size_t in_use) {
    const auto share = static_cast<long>(options.connections / std::max(shared.lent.load(), 1));
    curl_multi_setopt(multi.get(), CURLMOPT_MAXCONNECTS,
                      std::max({share, static_cast<long>(in_use), 1L}));
  }

  void Detach(Job& job) {
    curl_multi_remove_handle(multi.get(), job.transfer->easy());
    idle.push_back(std::move(job.transfer));
    shared.ReturnPermit();
  }

  void Finish(Jobs& from, Jobs::iterator job, Status status) {
    if (status.ok()) last_success = SystemClock().now();
    job->call->status_ = std::move(status);
    ended.push_back(job->call);
    from.erase(job);
  }

  // Has used up its time: the error says what happened last.
  Status OutOfTime(const Job& job) const {
    const std::string last = !job.last.ok()          ? Message(job.last)
                             : job.call->tries_ == 0 ? "other requests left it no connection"
                                                     : "no complete answer came";
    return DeadlineExceededError(job.call->what(), ": gave up after ",
                                 options.retry.deadline.count(), " ms and ", job.call->tries_,
                                 " tries; the last: ", last);
  }

  // `job` is in `waiting`; its try is over and another one is wanted.
  void Again(Jobs::iterator job, const HttpVerdict& verdict) {
    const RetryOptions& retry = options.retry;
    job->last = verdict.status;
    job->redirected = false;
    if (job->call->tries_ >= retry.max_tries) {
      Finish(waiting, job,
             Annotate(verdict.status, StrCat("gave up after ", job->call->tries_, " tries")));
      return;
    }
    const Milliseconds wait =
        std::max(WaitAfter(retry, job->call->tries_, shared.Random()), verdict.wait);
    job->due = SystemClock().now() + wait;
    if (job->due >= job->deadline.time()) Finish(waiting, job, OutOfTime(*job));
  }

  Status StartTry(Job& job, Time now) {
    if (!job.redirected) {
      if (job.call->tries_ == 0) {
        job.deadline = Deadline::After(options.retry.deadline);
      }
      ++job.call->tries_;
      AIT_ASSIGN_OR_RETURN(job.request, job.call->Prepare());
      job.url = job.request.url;
      job.same_origin = true;
      job.redirects = 0;
    }
    if (idle.empty()) {
      AIT_ASSIGN_OR_RETURN(job.transfer, CurlTransfer::Create());
    } else {
      job.transfer = std::move(idle.back());
      idle.pop_back();
    }
    return job.transfer->Start(options, job.request, job.url, job.same_origin, job.call, now);
  }

  // A call that waits for its next try keeps its place, so that a server that is down is asked by a
  // few calls until one gives up, and not by one after the other.
  bool HasPlace() const {
    const auto in_play = active.size() + static_cast<std::size_t>(std::count_if(
                                             waiting.begin(), waiting.end(),
                                             [](const Job& job) { return job.call->tries_ > 0; }));
    return in_play < static_cast<std::size_t>(options.connections);
  }

  void StartDue() {
    const Time now = SystemClock().now();
    bool has_place = HasPlace();
    for (auto job = waiting.begin(); job != waiting.end();) {
      const auto next = std::next(job);
      if (job->due <= now && (has_place || job->call->tries_ > 0)) {
        if (!shared.TryPermit(options.connections)) return;
        KeepShare(active.size() + 1);
        Status status = StartTry(*job, now);
        if (status.ok()) {
          curl_easy_setopt(job->transfer->easy(), CURLOPT_PRIVATE, static_cast<void*>(&*job));
          if (curl_multi_add_handle(multi.get(), job->transfer->easy()) != CURLM_OK) {
            status = ResourceExhaustedError(job->call->what(), ": libcurl takes no more requests");
          }
        }
        if (status.ok()) {
          active.splice(active.end(), waiting, job);
        } else {
          shared.ReturnPermit();
          Finish(waiting, job, std::move(status));
        }
        has_place = HasPlace();
      }
      job = next;
    }
  }

  Jobs::iterator Find(const Job* job) {
    return std::find_if(active.begin(), active.end(),
                        [=](const Job& each) { return &each == job; });
  }

  // Takes the try of `job` out of libcurl and decides what is next.
  void EndTry(Jobs::iterator job, HttpVerdict verdict) {
    Detach(*job);
    waiting.splice(waiting.end(), active, job);
    if (verdict.next == HttpVerdict::Next::kRetry) {
      Again(job, verdict);
    } else {
      Finish(waiting, job, std::move(verdict.status));
    }
  }

  // Whether the answer is a redirect that is followed; `status` is an error if it cannot be.
  static bool IsRedirect(Job& job, Status& status) {
    if (job.request.max_redirects == 0) return false;
    const HttpAnswer& answer = job.transfer->answer();
    const auto location = answer.Find("location");
    if (answer.status < 301 || answer.status > 308 || answer.status == 304 || !location) {
      return false;
    }
    if (++job.redirects > job.request.max_redirects) {
      status = FailedPreconditionError(job.call->what(), ": redirected more than ",
                                       job.request.max_redirects, " times");
      return true;
    }
    StatusOr<Redirect> redirect = FollowRedirect(job.url, std::string(*location));
    if (!redirect.ok()) {
      status = Annotate(redirect.status(), job.call->what());
      return true;
    }
    job.url = std::move(redirect->url);
    job.same_origin = job.same_origin && redirect->same_origin;
    job.redirected = true;
    return true;
  }

  void TakeAnswers() {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      KeepShare(active.size() - 1);
      const CURLcode code = message->data.result;  // `message` ends with the handle's removal
      char* mark = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &mark);
      const auto job = Find(reinterpret_cast<const Job*>(mark));
      Status status;
      if (code == CURLE_OK && IsRedirect(*job, status)) {
        Detach(*job);
        job->due = {};
        waiting.splice(waiting.end(), active, job);
        if (!status.ok()) Finish(waiting, job, std::move(status));
      } else {
        EndTry(job, job->transfer->End(code));
      }
    }
  }

  // When a call that no try was made of has waited too long: others use up all connections, and
  // none of this session came to a good end in all that time.
  Time LatestStart(const Job& job) const {
    return std::max(job.added, last_success) + options.retry.deadline;
  }

  void CheckTimes() {
    const Time now = SystemClock().now();
    for (auto job = waiting.begin(); job != waiting.end();) {
      const auto next = std::next(job);
      if (job->call->tries_ == 0 ? now >= LatestStart(*job) : now >= job->deadline.time()) {
        Finish(waiting, job, OutOfTime(*job));
      }
      job = next;
    }
    for (auto job = active.begin(); job != active.end();) {
      const auto next = std::next(job);
      if (now >= job->deadline.time()) {
        EndTry(job, HttpVerdict::Done(OutOfTime(*job)));
      } else if (!job->transfer->IsAlive(options, now)) {
        EndTry(job, HttpVerdict::Retry(UnavailableError(
                        job->call->what(), ": stalled, less than ", options.min_bytes_per_second,
                        " bytes/s for ", options.stall_timeout.count(), " ms")));
      }
      job = next;
    }
  }

  Duration UntilNextEvent() const {
    const Time now = SystemClock().now();
    Duration wait = kLongestPoll;
    for (const Job& job : active) {
      wait = std::min({wait, job.deadline.time() - now, job.transfer->next_check(options) - now});
    }
    for (const Job& job : waiting) {
      // Those that are due wait for one of the others to end.
      if (job.due > now) wait = std::min(wait, job.due - now);
    }
    return std::max(wait, Duration::zero());
  }

  const HttpOptions& options;
  HttpClient::State& shared;
  std::unique_ptr<CURLM, MultiFree> multi;
  Jobs waiting;
  Jobs active;
  Time last_success{};
  std::deque<HttpCall*> ended;
  std::vector<std::unique_ptr<CurlTransfer>> idle;
  std::atomic<bool> is_interrupted = false;
};

std::optional<std::string_view> HttpAnswer::Find(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return std::nullopt;
}

HttpSession::HttpSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpSession::~HttpSession() = default;

void HttpSession::Add(HttpCall* call) {
  call->status_ = OkStatus();
  call->tries_ = 0;
  impl_->waiting.push_back({.call = call, .added = SystemClock().now()});
}

HttpCall* HttpSession::RunUntilOneEnds() {
  Impl& impl = *impl_;
  while (!impl.is_interrupted) {
    if (impl.ended.empty()) {
      if (impl.waiting.empty() && impl.active.empty()) return nullptr;
      impl.StartDue();
      int running = 0;
      curl_multi_perform(impl.multi.get(), &running);
      impl.TakeAnswers();
      impl.CheckTimes();
    }
    if (!impl.ended.empty()) {
      HttpCall* call = impl.ended.front();
      impl.ended.pop_front();
      return call;
    }
    const auto now = SystemClock().now();
    const bool has_place = impl.HasPlace();
    const bool wants_permit =
        impl.active.empty() &&
        std::any_of(impl.waiting.begin(), impl.waiting.end(), [=](const Impl::Job& job) {
          return job.due <= now && (has_place || job.call->tries() > 0);
        });
    if (wants_permit) {
      impl.shared.AwaitPermit(impl.options.connections, std::chrono::milliseconds(50));
      continue;
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(impl.UntilNextEvent());
    curl_multi_poll(impl.multi.get(), nullptr, 0, static_cast<int>(wait.count()), nullptr);
  }
  return nullptr;
}

void HttpSession::Clear() {
  Impl& impl = *impl_;
  for (Impl::Job& job : impl.active) {
    impl.Detach(job);
    job.call->status_ = CancelledError(job.call->what(), ": given up");
  }
  for (Impl::Job& job : impl.waiting) {
    job.call->status_ = CancelledError(job.call->what(), ": given up");
  }
  impl.active.clear();
  impl.waiting.clear();
  impl.ended.clear();
  impl.is_interrupted = false;
}

void HttpSession::Interrupt() {
  impl_->is_interrupted = true;
  curl_multi_wakeup(impl_->multi.get());
}

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpClient::~HttpClient() = default;

StatusOr<std::shared_ptr<HttpClient>> HttpClient::Create(const HttpOptions& options) {
  AIT_RETURN_IF_ERROR(Check(options));
  AIT_RETURN_IF_ERROR(UseCurl());
  return std::shared_ptr<HttpClient>(new HttpClient(std::make_unique<Impl>(options)));
}

const HttpOptions& HttpClient::options() const { return impl_->options; }

StatusOr<std::shared_ptr<HttpSession>> HttpClient::Borrow() {
  State& state = impl_->Mine();
  std::unique_ptr<HttpSession> session;
  {
    const std::scoped_lock lock(state.mutex);
    if (!state.idle.empty()) {
      session = std::move(state.idle.back());
      state.idle.pop_back();
    }
  }
  if (!session) {
    auto impl = std::make_unique<HttpSession::Impl>(impl_->options, state);
    if (!impl->multi) return ResourceExhaustedError("no memory for a session of libcurl");
    session.reset(new HttpSession(std::move(impl)));
  }
  ++state.lent;
  return std::shared_ptr<HttpSession>(session.release(),
                                      [client = shared_from_this()](HttpSession* used) {
                                        client->TakeBack(std::unique_ptr<HttpSession>(used));
                                      });
}

void HttpClient::TakeBack(std::unique_ptr<HttpSession> session) {
  State& state = session->impl_->shared;
  if (state.forks != ForkSafeMutex::forks()) {
    static_cast<void>(session.release());
    return;
  }
  session->Clear();
  --state.lent;
  std::unique_ptr<HttpSession> one_too_many;  // ends without the lock
  const std::scoped_lock lock(state.mutex);
  state.idle.push_back(std::move(session));
  if (state.idle.size() > static_cast<std::size_t>(impl_->options.connections)) {
    one_too_many = std::move(state.idle.front());
    state.idle.pop_front();
  }
}

Status HttpClient::Run(std::span<HttpCall* const> calls, AfterError after_error) {
  const StatusOr<std::shared_ptr<HttpSession>> lent = Borrow();
  for (HttpCall* call : calls) call->status_ = lent.status();
  if (!lent.ok()) return lent.status();
  const std::shared_ptr<HttpSession>& session = *lent;
  for (HttpCall* call : calls) session->Add(call);
  Status first;
  while (const HttpCall* call = session->RunUntilOneEnds()) {
    if (first.ok()) first = call->status();
    if (!first.ok() && after_error == AfterError::kStop) break;  // the session clears the others
  }
  return first;
}

std::string Describe(const HttpAnswer& answer) {
  std::string text = StrCat("HTTP ", answer.status);
  if (answer.body.empty() || answer.body.front() == '<') return text;
  text += ": ";
  for (const char c : std::string_view(answer.body).substr(0, 200)) {
    text += c >= ' ' && c <= '~' ? c : ' ';
  }
  return text;
}

std::chrono::milliseconds RetryAfter(const HttpAnswer& answer) {
  const auto after = answer.Find("retry-after");
  return after ? ParseRetryAfter(*after, answer.Find("date").value_or(""))
               : std::chrono::milliseconds(0);
}

HttpVerdict JudgeRefusal(std::string_view what, const HttpAnswer& answer, std::string_view detail) {
  const std::string text =
      StrCat(what, ": HTTP ", answer.status, detail.empty() ? "" : ", ", detail);
  if (IsTransientHttpStatus(answer.status)) {
    HttpVerdict verdict = HttpVerdict::Retry(UnavailableError(text));
    verdict.wait = RetryAfter(answer);
    return verdict;
  }
  switch (answer.status) {
    case 401:
    case 403:
    case 407:
      return HttpVerdict::Done(PermissionDeniedError(text));
    case 404:
    case 410:
      return HttpVerdict::Done(NotFoundError(text));
    case 412:
      return HttpVerdict::Done(AbortedError(text, "; it has changed since it was opened"));
    case 416:
      return HttpVerdict::Done(DataLossError(text, "; it has become shorter since it was opened"));
    case 405:
    case 501:
      return HttpVerdict::Done(UnimplementedError(text));
    default:
      return HttpVerdict::Done(FailedPreconditionError(text));
  }
}

}  // namespace ait::inline v0::internal
