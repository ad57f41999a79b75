// SPDX-License-Identifier: Apache-2.0
#include "data/storage/s3_xml_internal.h"

#include <charconv>
#include <optional>

#include "data/storage/uri_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kMaxDepth = 16;
constexpr std::string_view kSpaces = " \t\r\n";

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == ':' || static_cast<unsigned char>(c) >= 0x80;
}

bool IsSpace(char c) { return kSpaces.find(c) != std::string_view::npos; }

void AppendUtf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

template <typename Number>
bool ParseAll(std::string_view text, Number& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

// Calls visit(path of element names below the root, text) at each end of an element.
template <typename Visit>
Status ForEachElement(std::string_view xml, std::string_view root, const Visit& visit) {
  XmlReader reader(xml);
  std::vector<std::string> path;
  std::string text;
  while (true) {
    AIT_ASSIGN_OR_RETURN(const XmlReader::Event event, reader.Next());
    switch (event) {
      case XmlReader::Event::kOpen:
        if (reader.depth() == 1 && reader.name() != root) {
          return InvalidArgumentError("the answer is <", reader.name().substr(0, 60), ">, not <",
                                      root, ">");
        }
        path.emplace_back(reader.name());
        text.clear();
        break;
      case XmlReader::Event::kText:
        text += reader.text();
        break;
      case XmlReader::Event::kClose: {
        std::string joined;
        for (std::size_t i = 1; i < path.size(); ++i) joined += (i > 1 ? "/" : "") + path[i];
        AIT_RETURN_IF_ERROR(visit(joined, text));
        path.pop_back();
        text.clear();
        break;
      }
      case XmlReader::Event::kEnd:
        return OkStatus();
    }
  }
}

}  // namespace

Status XmlReader::Bad(std::string_view why) const {
  return InvalidArgumentError("not well-formed XML at byte ", at_, ": ", why);
}

StatusOr<XmlReader::Event> XmlReader::Next() {
  if (!status_.ok()) return status_;
  StatusOr<Event> event = Read();
  status_ = event.status();
  return event;
}

// Skips "<!--…-->" and the like. False if it does not lie here, or has no end.
bool XmlReader::Skip(std::string_view begin, std::string_view end) {
  if (!document_.substr(at_).starts_with(begin)) return false;
  const std::size_t found = document_.find(end, at_ + begin.size());
  if (found == std::string_view::npos) return false;
  at_ = found + end.size();
  return true;
}

StatusOr<XmlReader::Event> XmlReader::Read() {
  if (close_next_) {
    close_next_ = false;
    open_.pop_back();
    return Event::kClose;
  }
  if (at_ == 0 && document_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  while (open_.empty()) {  // before and after the root
    while (at_ < document_.size() && IsSpace(document_[at_])) ++at_;
    if (at_ == document_.size()) {
      if (!has_root_) return Bad("no element");
      return Event::kEnd;
    }
    if (Skip("<?", "?>") || Skip("<!--", "-->")) continue;
    if (has_root_) return Bad("something follows the document");
    if (document_[at_] != '<') return Bad("text outside of an element");
    return ReadTag();
  }
  text_.clear();
  AIT_RETURN_IF_ERROR(ReadText());
  if (!text_.empty()) return Event::kText;
  return ReadTag();
}

// Up to the next tag; ends within the document.
Status XmlReader::ReadText() {
  while (at_ < document_.size()) {
    const std::string_view rest = document_.substr(at_);
    if (rest.starts_with("<![CDATA[")) {
      const std::size_t end = rest.find("]]>");
      if (end == std::string_view::npos) return Bad("CDATA without an end");
      text_ += rest.substr(9, end - 9);
      at_ += end + 3;
    } else if (Skip("<!--", "-->") || Skip("<?", "?>")) {
      continue;
    } else if (rest.front() == '<') {
      return OkStatus();
    } else if (rest.front() == '&') {
      AIT_RETURN_IF_ERROR(ReadReference());
    } else {
      const std::size_t end = rest.find_first_of("<&");
      text_ += rest.substr(0, end);
      at_ += std::min(end, rest.size());
    }
  }
  return Bad("it ends within an element");
}

Status XmlReader::ReadReference() {
  const std::size_t end = document_.find(';', at_);
  if (end == std::string_view::npos || end - at_ > 12) return Bad("'&' that begins no reference");
  const std::string_view name = document_.substr(at_ + 1, end - at_ - 1);
  if (name == "amp") {
    text_ += '&';
  } else if (name == "lt") {
    text_ += '<';
  } else if (name == "gt") {
    text_ += '>';
  } else if (name == "quot") {
    text_ += '"';
  } else if (name == "apos") {
    text_ += '\'';
  } else {
    std::uint32_t code = 0;
    const bool is_number = name.starts_with("#x")
                               ? ParseAll(name.substr(2), code, 16)
                               : name.starts_with("#") && ParseAll(name.substr(1), code);
    if (!is_number || code == 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      return Bad("a reference to no character");
    }
    AppendUtf8(text_, code);
  }
  at_ = end + 1;
  return OkStatus();
}

StatusOr<XmlReader::Event> XmlReader::ReadTag() {
  std::size_t at = at_ + 1;
  const bool is_close = at < document_.size() && document_[at] == '/';
  if (is_close) ++at;
  const std::size_t begin = at;
  while (at < document_.size() && IsNameCharacter(document_[at])) ++at;
  const std::string_view name = document_.substr(begin, at - begin);
  if (name.empty()) return Bad("a tag without a name (document types are refused)");
  // Attributes: nothing is taken from them, but their quotes may hold '>'.
  bool is_empty = false;
  char quote = '\0';
  for (; at < document_.size(); ++at) {
    const char c = document_[at];
    if (quote != '\0') {
      if (c == quote) quote = '\0';
      if (c == '<') return Bad("'<' in an attribute");
    } else if (c == '>') {
      break;
    } else if (c == '"' || c == '\'') {
      if (is_close) return Bad("attributes at the end of an element");
      quote = c;
    } else if (c == '/' && at + 1 < document_.size() && document_[at + 1] == '>' && !is_close) {
      is_empty = true;
    } else if (!IsSpace(c) && (is_close || (c != '=' && !IsNameCharacter(c)))) {
      return Bad("a tag that is none");
    }
  }
  if (at == document_.size()) return Bad("it ends within a tag");
  name_ = name.substr(name.find(':') == std::string_view::npos ? 0 : name.find(':') + 1);
  if (is_close) {
    if (open_.empty() || open_.back() != name) return Bad("the end of an element not open");
    open_.pop_back();
    at_ = at + 1;
    return Event::kClose;
  }
  if (open_.size() == kMaxDepth) return Bad("elements nested too deeply");
  open_.push_back(name);
  has_root_ = true;
  close_next_ = is_empty;
  at_ = at + 1;
  return Event::kOpen;
}

StatusOr<S3ListPage> ParseS3ListPage(std::string_view xml) {
  S3ListPage page;
  S3ListedObject object;
  bool has_key = false, is_url_encoded = false;
  AIT_RETURN_IF_ERROR(ForEachElement(
      xml, "ListBucketResult", [&](const std::string& path, const std::string& text) -> Status {
        if (path == "Contents/Key") {
          object.key = text;
          has_key = true;
        } else if (path == "Contents/Size") {
          if (!ParseAll(text, object.size_bytes) || object.size_bytes < 0) {
            return InvalidArgumentError("a size of '", text.substr(0, 40), "'");
          }
        } else if (path == "Contents/ETag") {
          object.etag = text;
        } else if (path == "Contents") {
          if (!has_key || object.size_bytes < 0) {
            return InvalidArgumentError("an object without key or size");
          }
          page.objects.push_back(std::move(object));
          object = {};
          has_key = false;
        } else if (path == "IsTruncated") {
          page.is_truncated = text == "true";
        } else if (path == "NextContinuationToken") {
          page.next_token = text;
        } else if (path == "EncodingType") {
          is_url_encoded = text == "url";
        }
        return OkStatus();
      }));
  if (page.is_truncated && page.next_token.empty()) {
    return InvalidArgumentError("a list that goes on and does not say where");
  }
  for (S3ListedObject& each : page.objects) {
    if (is_url_encoded) {
      AIT_ASSIGN_OR_RETURN(each.key, PercentDecode(each.key, Plus::kIsSpace));
    }
  }
  return page;
}

StatusOr<S3Error> ParseS3Error(std::string_view xml) {
  S3Error error;
  AIT_RETURN_IF_ERROR(
      ForEachElement(xml, "Error", [&](const std::string& path, const std::string& text) {
        if (path == "Code") error.code = text;
        if (path == "Message") error.message = text;
        if (path == "Region") error.region = text;
        return OkStatus();
      }));
  return error;
}

StatusOr<std::string> ParseS3UploadId(std::string_view xml) {
  std::string id;
  AIT_RETURN_IF_ERROR(ForEachElement(xml, "InitiateMultipartUploadResult",
                                     [&](const std::string& path, const std::string& text) {
                                       if (path == "UploadId") id = text;
                                       return OkStatus();
                                     }));
  if (id.empty()) return InvalidArgumentError("an upload without an id");
  return id;
}

}  // namespace ait::inline v0::internal
