// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_S3_XML_INTERNAL_H_
#define AIT_DATA_STORAGE_S3_XML_INTERNAL_H_

// The answers of S3 that are XML: lists, errors, uploads.
//
// A strict reader of the XML that S3 writes: elements, character data, the five named entities and
// numeric ones, CDATA, comments and a declaration. Document types are refused, so nothing expands.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"

namespace ait::inline v0 {
namespace internal {

/// Walks a document. After an error every call returns it again.
class XmlReader {
 public:
  enum class Event { kOpen, kText, kClose, kEnd };
  /// `document` outlives the reader.
  explicit XmlReader(std::string_view document) : document_(document) {}

  /// **Errors.** InvalidArgument: not well-formed, or nested deeper than 16 elements.
  StatusOr<Event> Next();
  /// Of the element that was opened or closed, without its namespace prefix.
  std::string_view name() const { return name_; }
  /// The characters between two tags, decoded; never empty.
  const std::string& text() const { return text_; }
  int depth() const { return static_cast<int>(open_.size()); }

 private:
  StatusOr<Event> Read();
  StatusOr<Event> ReadTag();
  Status ReadText();
  Status ReadReference();
  bool Skip(std::string_view begin, std::string_view end);
  Status Bad(std::string_view why) const;

  std::string_view document_;
  std::size_t at_ = 0;
  std::string_view name_;
  std::string text_;
  std::vector<std::string_view> open_;  // names as written
  bool close_next_ = false;             // after an empty element
  bool has_root_ = false;
  Status status_;
};

struct S3ListedObject {
  std::string key;
  std::int64_t size_bytes = -1;
  std::string etag;
};
struct S3ListPage {
  std::vector<S3ListedObject> objects;
  bool is_truncated = false;
  std::string next_token;
};
/// An answer of ListObjectsV2. **Errors.** InvalidArgument: none, or an object without key or size.
StatusOr<S3ListPage> ParseS3ListPage(std::string_view xml);

struct S3Error {
  std::string code;
  std::string message;
  std::string region;  // the right one, where the wrong one is the error
};
/// An answer whose root is "Error"; InvalidArgument if it is another.
StatusOr<S3Error> ParseS3Error(std::string_view xml);

/// The UploadId of an answer of CreateMultipartUpload.
StatusOr<std::string> ParseS3UploadId(std::string_view xml);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_S3_XML_INTERNAL_H_
