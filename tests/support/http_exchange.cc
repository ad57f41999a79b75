// SPDX-License-Identifier: Apache-2.0
#include <openssl/evp.h>

#include <algorithm>
#include <cstdio>

#include "support/http_exchange_internal.h"

namespace ait::testing {
namespace {

using Kind = HttpFault::Kind;

std::string XmlEscape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string UrlEncode(std::string_view text) {
  std::string out;
  for (const char c : text) {
    char encoded[4];
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 ||
        std::string_view("-._~/").find(c) != std::string_view::npos) {
      out += c;
    } else if (c == ' ') {
      out += '+';
    } else {
      std::snprintf(encoded, sizeof(encoded), "%%%02X", static_cast<unsigned char>(c));
      out += encoded;
    }
  }
  return out;
}

HttpReply S3Error(int status, const std::string& code, const std::string& more = {}) {
  return {.status = status,
          .headers = {{"Content-Type", "application/xml"}},
          .body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>" + code +
                  "</Code><Message>refused by the test</Message>" + more + "</Error>"};
}

// The range that a header asks for, cut at the size; false: it cannot be met.
bool ParseRange(const std::string& text, std::int64_t size, std::int64_t& first,
                std::int64_t& last) {
  long long from = 0, to = 0;
  if (std::sscanf(text.c_str(), "bytes=%lld-%lld", &from, &to) != 2 || from >= size) return false;
  first = from;
  last = std::min<std::int64_t>(to, size - 1);
  return first <= last;
}

HttpReply GetObject(const HttpFaultServerOptions& options, const std::string& bytes,
                    const HttpSeen& seen, const HttpFault* fault) {
  const auto is = [&](Kind kind) { return fault != nullptr && fault->kind == kind; };
  const auto header = [&](const char* name) {
    const auto found = seen.headers.find(name);
    return found == seen.headers.end() ? std::string() : found->second;
  };
  HttpReply reply;
  reply.is_object = true;
  reply.object_size = static_cast<std::int64_t>(bytes.size());
  reply.etag = is(Kind::kWrongEtag) ? "\"another\"" : Md5Etag(bytes);
  if (!is(Kind::kNoEtag)) reply.headers.emplace_back("ETag", reply.etag);
  for (const std::string& line : options.object_headers) {
    const std::size_t colon = line.find(": ");
    reply.headers.emplace_back(line.substr(0, colon), line.substr(colon + 2));
  }
  if (options.sends_last_modified) {
    reply.headers.emplace_back("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT");
  }
  const std::string match = header("if-match");
  if (!match.empty() && match != Md5Etag(bytes) && !is(Kind::kIgnoreMatch)) {
    return S3Error(412, "PreconditionFailed");
  }
  std::int64_t first = 0, last = reply.object_size - 1;
  const std::string range = header("range");
  if (!range.empty() && !is(Kind::kIgnoreRange) && options.knows_ranges) {
    if (!ParseRange(range, reply.object_size, first, last)) {
      HttpReply refused = S3Error(416, "InvalidRange");
      refused.headers.emplace_back("Content-Range", "bytes */" + std::to_string(bytes.size()));
      return refused;
    }
    if (is(Kind::kWrongRange)) {
      ++first;
      last = std::min(last + 1, reply.object_size - 1);
    }
    reply.status = 206;
    reply.headers.emplace_back("Content-Range", "bytes " + std::to_string(first) + "-" +
                                                    std::to_string(last) + "/" +
                                                    std::to_string(bytes.size()));
  }
  reply.first = first;
  reply.body =
      bytes.substr(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first + 1));
  if (seen.method == "HEAD") {
    reply.headers.emplace_back("Content-Length", std::to_string(reply.body.size()));
    reply.body.clear();
  }
  return reply;
}

HttpReply ListObjects(const HttpFaultServerOptions& options, const ServedObjects& objects,
                      const std::string& bucket, std::map<std::string, std::string> query) {
  const bool encodes = options.list_encodes_urls && query["encoding-type"] == "url";
  const auto name = [&](const std::string& key) {
    return encodes ? UrlEncode(key) : XmlEscape(key);
  };
  std::string root = bucket;
  root.insert(0, 1, '/');
  root.push_back('/');
  std::string after = query["continuation-token"];
  std::string contents, next;
  int count = 0;
  for (const auto& [path, bytes] : objects.objects) {
    if (!path.starts_with(root + query["prefix"])) continue;
    const std::string key = path.substr(root.size());
    if (!after.empty() && key <= after) continue;
    if (count == options.list_page) {
      next = after;
      break;
    }
    after = key;
    ++count;
    contents += "<Contents><Key>" + name(key) +
                "</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>" +
                XmlEscape(Md5Etag(bytes)) + "</ETag><Size>" + std::to_string(bytes.size()) +
                "</Size><StorageClass>STANDARD</StorageClass></Contents>";
  }
  std::string body =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
      "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>" +
      bucket + "</Name><Prefix>" + name(query["prefix"]) + "</Prefix><KeyCount>" +
      std::to_string(count) + "</KeyCount>";
  if (encodes) body += "<EncodingType>url</EncodingType>";
  body += next.empty() ? "<IsTruncated>false</IsTruncated>"
                       : "<IsTruncated>true</IsTruncated><NextContinuationToken>" +
                             XmlEscape(next) + "</NextContinuationToken>";
  return {.headers = {{"Content-Type", "application/xml"}},
          .body = body + contents + "</ListBucketResult>"};
}

HttpReply Upload(ServedObjects& objects, const std::string& path, const HttpSeen& seen,
                 std::map<std::string, std::string> query) {
  if (query.contains("uploads")) {
    const std::string id = "upload+" + std::to_string(++objects.next_upload) + "/=";
    objects.uploads[id];
    return {.body = "<InitiateMultipartUploadResult><UploadId>" + id +
                    "</UploadId></InitiateMultipartUploadResult>"};
  }
  if (!query.contains("uploadId")) {
    if (seen.method == "DELETE") {
      objects.objects.erase(path);
      return {.status = 204};
    }
    objects.objects[path] = seen.body;
    return {.headers = {{"ETag", Md5Etag(seen.body)}}};
  }
  const auto upload = objects.uploads.find(query["uploadId"]);
  if (upload == objects.uploads.end()) return S3Error(404, "NoSuchUpload");
  if (seen.method == "PUT") {
    upload->second[std::stoi(query["partNumber"])] = seen.body;
    return {.headers = {{"ETag", Md5Etag(seen.body)}}};
  }
  if (seen.method == "POST") {
    std::string whole;
    for (const auto& [number, part] : upload->second) {
      std::string listed = "<PartNumber>" + std::to_string(number) + "</PartNumber><ETag>";
      listed += Md5Etag(part) + "</ETag>";
      if (seen.body.find(listed) == std::string::npos) return S3Error(400, "InvalidPart");
      whole += part;
    }
    objects.objects[path] = whole;
  }
  objects.uploads.erase(upload);
  return {.status = seen.method == "DELETE" ? 204 : 200,
          .body =
              "<CompleteMultipartUploadResult><ETag>&quot;x&quot;</ETag>"
              "</CompleteMultipartUploadResult>"};
}

// The metadata service of instances, version 2.
HttpReply InstanceMetadata(const HttpFaultServerOptions& options, const HttpSeen& seen) {
  const std::string token = "token-of-the-test";
  if (seen.target == "/latest/api/token") {
    const auto ttl = seen.headers.find("x-aws-ec2-metadata-token-ttl-seconds");
    if (seen.method != "PUT" || ttl == seen.headers.end()) return {.status = 400};
    return {.body = token};
  }
  const auto given = seen.headers.find("x-aws-ec2-metadata-token");
  if (given == seen.headers.end() || given->second != token) return {.status = 401};
  const std::string roles = "/latest/meta-data/iam/security-credentials/";
  if (!options.instance_credentials) return {.status = 404};
  if (seen.target == roles) return {.body = "a-role"};
  if (seen.target == roles + "a-role") return {.body = options.instance_credentials()};
  return {.status = 404};
}

}  // namespace

std::string Md5Etag(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_md5(), nullptr);
  std::string etag = "\"";
  for (unsigned i = 0; i < size; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", digest[i]);
    etag += hex;
  }
  return etag + "\"";
}

std::string DecodePercent(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::map<std::string, std::string> QueryOf(std::string_view target) {
  std::map<std::string, std::string> query;
  const std::size_t question = target.find('?');
  if (question == std::string_view::npos) return query;
  std::string_view rest = target.substr(question + 1);
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    query[DecodePercent(pair.substr(0, equals))] =
        equals == std::string_view::npos ? "" : DecodePercent(pair.substr(equals + 1));
  }
  return query;
}

HttpReply AnswerRequest(const HttpFaultServerOptions& options, ServedObjects& objects,
                        const HttpSeen& seen, const HttpFault* fault) {
  if (seen.target.starts_with("/latest/")) return InstanceMetadata(options, seen);
  if (!options.access_key_id.empty()) {
    const std::string reason = RefuseSignature(options, seen);
    if (!reason.empty()) return S3Error(reason == "ExpiredToken" ? 400 : 403, reason);
  }
  std::string path = DecodePercent(std::string_view(seen.target).substr(0, seen.target.find('?')));
  const auto host = seen.headers.find("host");
  if (!options.bucket_host_suffix.empty() && host != seen.headers.end()) {
    const std::size_t suffix = host->second.find("." + options.bucket_host_suffix);
    if (suffix != std::string::npos)
      path.insert(0, host->second.substr(0, suffix)).insert(0, 1, '/');
  }
  const std::map<std::string, std::string> query = QueryOf(seen.target);
  const std::scoped_lock lock(objects.mutex);
  if (query.contains("list-type")) {
    std::string bucket = path.substr(1);
    if (bucket.ends_with("/")) bucket.pop_back();
    return ListObjects(options, objects, bucket, query);
  }
  if (seen.method == "PUT" || seen.method == "POST" || seen.method == "DELETE") {
    return Upload(objects, path, seen, query);
  }
  if (seen.method == "HEAD" && !options.knows_head) return {.status = 405};
  const auto object = objects.objects.find(path);
  if (object == objects.objects.end()) return S3Error(404, "NoSuchKey");
  if (fault != nullptr && fault->kind == Kind::kChange) {
    for (char& c : object->second) c = static_cast<char>(c ^ 0x55);
  }
  return GetObject(options, object->second, seen, fault);
}

}  // namespace ait::testing
