// SPDX-License-Identifier: Apache-2.0
#include "data/storage/range_call_internal.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace ait::inline v0::internal {
namespace {

// A number of digits alone.
bool ParseNumber(std::string_view text, std::int64_t& value) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

StatusOr<ContentRange> ParseContentRange(std::string_view text) {
  const Status bad = InvalidArgumentError("the Content-Range '", text.substr(0, 100), "' is none");
  ContentRange range;
  if (!text.starts_with("bytes ")) return bad;
  text.remove_prefix(6);
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return bad;
  const std::string_view size = text.substr(slash + 1);
  if (size != "*" && !ParseNumber(size, range.size)) return bad;
  text = text.substr(0, slash);
  if (text == "*") return range;
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos || !ParseNumber(text.substr(0, dash), range.first) ||
      !ParseNumber(text.substr(dash + 1), range.last) || range.last < range.first) {
    return bad;
  }
  return range;
}

StatusOr<HttpRequest> RangeCall::Prepare() {
  verdict_ = {};
  skip_ = taken_ = 0;
  is_whole_ = is_too_long_ = false;
  const std::int64_t last = offset_ + static_cast<std::int64_t>(out_.size()) - 1;
  std::vector<std::string> headers = {StrCat("Range: bytes=", offset_, "-", last)};
  // A weak ETag never matches in If-Match; the answer's is compared in any case.
  if (version_.etag.starts_with('"')) headers.push_back("If-Match: " + version_.etag);
  return address_.Request("GET", std::move(headers));
}

Status RangeCall::CheckVersion(const HttpAnswer& answer) const {
  const std::string_view name = version_.etag.empty() ? "last-modified" : "etag";
  const std::string& pinned = version_.etag.empty() ? version_.last_modified : version_.etag;
  if (pinned.empty()) return OkStatus();
  const std::string_view seen = answer.Find(name).value_or("none");
  if (seen == pinned) return OkStatus();
  return AbortedError(what(), " has changed since it was opened: its ", name, " was ", pinned,
                      " and is ", seen.substr(0, 100), "; open it again");
}

HttpVerdict RangeCall::Check(const HttpAnswer& answer) {
  if (answer.status != 200 && answer.status != 206) return address_.Judge(answer);
  if (Status status = CheckVersion(answer); !status.ok()) {
    return HttpVerdict::Done(std::move(status));
  }
  const std::string_view encoding = answer.Find("content-encoding").value_or("identity");
  if (encoding != "identity" && !address_.stores_encoding()) {
    return HttpVerdict::Done(FailedPreconditionError(
        what(), ": the server answers in Content-Encoding ", encoding.substr(0, 40),
        " though it was asked for none: these are not the bytes of the object itself"));
  }
  const auto length = static_cast<std::int64_t>(out_.size());
  if (answer.status == 200) {
    is_whole_ = true;
    skip_ = offset_;
    std::int64_t size = 0;
    const auto text = answer.Find("content-length");
    if (text && ParseNumber(*text, size) && size != version_.size_bytes) {
      return HttpVerdict::Done(AbortedError(what(), " has changed since it was opened: it had ",
                                            version_.size_bytes, " bytes and has ", size,
                                            "; open it again"));
    }
    if (skip_ > options_.max_skip_bytes) {
      return HttpVerdict::Done(
          FailedPreconditionError(what(), ": the server ignores ranges, so ", skip_,
                                  " bytes would be read for nothing, at "
                                  "most ",
                                  options_.max_skip_bytes,
                                  " are allowed (max_skip_bytes); copy it to this host "
                                  "first"));
    }
    return HttpVerdict::Done(OkStatus());
  }
  const std::string_view text = answer.Find("content-range").value_or("");
  const StatusOr<ContentRange> range = ParseContentRange(text);
  if (range.ok() && range->size >= 0 && range->size != version_.size_bytes) {
    return HttpVerdict::Done(AbortedError(what(), " has changed since it was opened: it had ",
                                          version_.size_bytes, " bytes and has ", range->size,
                                          "; open it again"));
  }
  if (!range.ok() || range->first != offset_ || range->last != offset_ + length - 1) {
    return HttpVerdict::Retry(DataLossError(what(), ": asked for bytes ", offset_, "-",
                                            offset_ + length - 1, " and was answered with '",
                                            text.substr(0, 100), "'"));
  }
  return HttpVerdict::Done(OkStatus());
}

BodyUse RangeCall::Begin(const HttpAnswer& answer) {
  if (answer.status != 200 && answer.status != 206) return BodyUse::kKeep;
  verdict_ = Check(answer);
  return verdict_.status.ok() ? BodyUse::kTake : BodyUse::kRefuse;
}

HttpCall::Taken RangeCall::Take(std::span<const std::byte> bytes) {
  const auto skipped = std::min(skip_, static_cast<std::int64_t>(bytes.size()));
  skip_ -= skipped;
  bytes = bytes.subspan(static_cast<std::size_t>(skipped));
  const auto wanted = out_.subspan(static_cast<std::size_t>(taken_));
  const std::size_t count = std::min(bytes.size(), wanted.size());
  if (count > 0) std::memcpy(wanted.data(), bytes.data(), count);
  taken_ += static_cast<std::int64_t>(count);
  if (count < bytes.size()) {
    is_too_long_ = !is_whole_ || offset_ + taken_ == version_.size_bytes;
    return Taken::kEnough;
  }
  const bool is_full = count == wanted.size();
  return is_full && is_whole_ && offset_ + taken_ < version_.size_bytes ? Taken::kEnough
                                                                        : Taken::kMore;
}

HttpVerdict RangeCall::End(const HttpAnswer& answer) {
  if (answer.status != 200 && answer.status != 206) return address_.Judge(answer);
  if (!verdict_.status.ok()) return verdict_;
  const auto length = static_cast<std::int64_t>(out_.size());
  if (taken_ == length && !is_too_long_) return HttpVerdict::Done(OkStatus());
  return HttpVerdict::Retry(UnavailableError(
      what(), ": of bytes ", offset_, "-", offset_ + length - 1,
      is_too_long_ ? " more came than were asked for" : StrCat(" only ", taken_, " came")));
}

}  // namespace ait::inline v0::internal
