// SPDX-License-Identifier: Apache-2.0
#include "data/storage/remote_object_internal.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <utility>

#include "data/storage/http_date_internal.h"
#include "data/storage/range_call_internal.h"
#include "data/storage/remote_stream_internal.h"

namespace ait::inline v0::internal {
namespace {

class StatCall final : public HttpCall {
 public:
  enum class By { kHead, kOneByte };
  StatCall(const RemoteAddress& address, By by) : address_(address), by_(by) {}

  std::string_view what() const override { return address_.what(); }
  StatusOr<HttpRequest> Prepare() override {
    if (by_ == By::kHead) return address_.Request("HEAD", {});
    return address_.Request("GET", {"Range: bytes=0-0"});
  }
  BodyUse Begin(const HttpAnswer& answer) override {
    return answer.status == 200 ? BodyUse::kRefuse : BodyUse::kKeep;
  }
  HttpVerdict End(const HttpAnswer& answer) override {
    version.etag = answer.Find("etag").value_or("");
    version.last_modified = answer.Find("last-modified").value_or("");
    version.is_last_modified_strong =
        IsStrongLastModified(version.last_modified, answer.Find("date").value_or(""));
    http_status = answer.status;
    StatusOr<std::int64_t> size = Size(answer);
    if (size.ok()) {
      version.size_bytes = *size;
      return HttpVerdict::Done(OkStatus());
    }
    if (answer.status == 200 || answer.status == 206) return HttpVerdict::Done(size.status());
    return address_.Judge(answer);
  }

  RemoteVersion version;
  int http_status = 0;  // 0 until there is an answer

 private:
  StatusOr<std::int64_t> Size(const HttpAnswer& answer) const {
    if (answer.status == 206 || answer.status == 416) {
      AIT_ASSIGN_OR_RETURN(const ContentRange range,
                           ParseContentRange(answer.Find("content-range").value_or("")));
      // 416 says the size where it is 0: not even one byte.
      if (range.size >= 0 && (answer.status == 206 || range.size == 0)) return range.size;
    } else if (answer.status == 200) {
      const std::string_view text = answer.Find("content-length").value_or("");
      std::int64_t size = -1;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
      if (error == std::errc() && end == text.data() + text.size() && size >= 0) return size;
    }
    return UnimplementedError(what(), ": the server does not tell its size; copy it to this host");
  }

  const RemoteAddress& address_;
  const By by_;
};

class RemoteObject final : public StoredObject {
 public:
  RemoteObject(std::shared_ptr<HttpClient> client, std::shared_ptr<const RemoteAddress> address,
               ObjectInfo info, RemoteVersion version)
      : source_(std::make_shared<RemoteSource>(std::move(client), std::move(address),
                                               std::move(version))),
        info_(std::move(info)) {}

  const ObjectInfo& info() const override { return info_; }

  Status ReadAt(std::int64_t offset_bytes, std::span<std::byte> out) const override {
    AIT_RETURN_IF_ERROR(CheckRange(shown_, offset_bytes, static_cast<std::int64_t>(out.size())));
    if (out.empty()) return OkStatus();
    std::deque<RangeCall> calls;
    Cut({offset_bytes, out, {}}, calls);
    // Without one part the others are worth nothing.
    return source_->client->Run(Pointers(calls), HttpClient::AfterError::kStop);
  }

  void ReadMany(std::span<ObjectRead> reads) const override {
    std::deque<RangeCall> calls;
    std::vector<std::size_t> call_ends;  // of each read, in `calls`
    for (ObjectRead& read : reads) {
      read.status =
          CheckRange(shown_, read.offset_bytes, static_cast<std::int64_t>(read.out.size()));
      if (read.status.ok()) Cut(read, calls);
      call_ends.push_back(calls.size());
    }
    if (calls.empty()) return;
    (void)source_->client->Run(Pointers(calls));  // each call has its own status
    std::size_t at = 0;
    for (std::size_t i = 0; i < reads.size(); ++i) {
      for (; at < call_ends[i]; ++at) {
        if (reads[i].status.ok()) reads[i].status = calls[at].status();
      }
    }
  }

  StatusOr<std::unique_ptr<ObjectStream>> Stream(const StreamOptions& options) const override {
    if (options.depth == 0) return StoredObject::Stream(options);
    return StreamRemote(source_, shown_, options);
  }

 private:
  static std::vector<HttpCall*> Pointers(std::deque<RangeCall>& calls) {
    std::vector<HttpCall*> pointers;
    for (RangeCall& call : calls) pointers.push_back(&call);
    return pointers;
  }

  // Cuts a read at multiples of part_bytes.
  void Cut(const ObjectRead& read, std::deque<RangeCall>& calls) const {
    const HttpOptions& options = source_->client->options();
    std::int64_t at = read.offset_bytes;
    std::span<std::byte> rest = read.out;
    while (!rest.empty()) {
      const std::int64_t to_border = options.part_bytes - at % options.part_bytes;
      const std::size_t length = std::min(static_cast<std::size_t>(to_border), rest.size());
      calls.emplace_back(options, *source_->address, source_->version, at, rest.first(length));
      at += static_cast<std::int64_t>(length);
      rest = rest.subspan(length);
    }
  }

  const std::shared_ptr<const RemoteSource> source_;
  const ObjectInfo info_;
  // For messages of the code that is shared with other storages.
  const ObjectInfo shown_ = {.url = std::string(source_->address->what()),
                             .size_bytes = info_.size_bytes};
};

}  // namespace

StatusOr<RemoteVersion> StatRemote(HttpClient& client, const RemoteAddress& address) {
  StatCall head(address, StatCall::By::kHead);
  HttpCall* call = &head;
  const Status status = client.Run({&call, 1});
  if (status.ok()) return head.version;
  // An answer to HEAD says nothing of its reason, and some servers (and signed URLs) know GET alone.
  if (head.http_status < 200 || head.http_status == 404 || head.http_status == 410 ||
      IsTransientHttpStatus(head.http_status)) {
    return status;
  }
  StatCall one_byte(address, StatCall::By::kOneByte);
  call = &one_byte;
  AIT_RETURN_IF_ERROR(client.Run({&call, 1}));
  return one_byte.version;
}

std::shared_ptr<const StoredObject> MakeRemoteObject(std::shared_ptr<HttpClient> client,
                                                     std::shared_ptr<const RemoteAddress> address,
                                                     ObjectInfo info, RemoteVersion version) {
  return std::make_shared<RemoteObject>(std::move(client), std::move(address), std::move(info),
                                        std::move(version));
}

}  // namespace ait::inline v0::internal
