// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_WEBDATASET_RECORD_INTERNAL_H_
#define AIT_DATA_FORMAT_WEBDATASET_RECORD_INTERNAL_H_

// How members of a tar become a sample: the rule of names, and the sample that is being collected.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/byte_view.h"
#include "ait/data/format/shard.h"
#include "ait/data/sample.h"
#include "data/format/tar_header_internal.h"

namespace ait::inline v0 {
namespace internal {

/// A name as key and extension; `is_field` is false if the rule gives it none.
struct KeyedName {
  bool is_field = false;
  std::string_view key;
  std::string_view extension;
};
KeyedName SplitName(std::string_view name, KeyRule rule);

/// Finds the data of a hard link. `name` is the member that it names.
class LinkResolver {
 public:
  virtual ~LinkResolver() = default;
  /// **Errors.** InvalidArgument: no such file, or one of more than `most_bytes`, which is not read.
  virtual StatusOr<ByteView> Resolve(std::string_view name, std::int64_t most_bytes) const = 0;
};

/// Members of one sample, in the order of the archive.
class WebDatasetRecord {
 public:
  explicit WebDatasetRecord(KeyRule rule) : rule_(rule) {}
  void set_rule(KeyRule rule) { rule_ = rule; }

  void Clear();
  bool is_empty() const { return field_count_ == 0; }
  const std::string& key() const { return key_; }

  enum class Take : std::uint8_t {
    kIgnored,  // no field of any sample
    kTaken,
    kOther,  // of another sample: this one is complete
  };
  /// `data_at`: where the data of the member begin, in whatever `Fill` is then given.
  Take Offer(const TarMember& member, std::int64_t data_at);

  /// Makes the sample; its fields are views of `bytes`, those of links to one file of the same
  /// memory. **Errors.** InvalidArgument: a member that is refused, an extension that is there twice,
  /// more than `most_bytes` together with the files that links name; those of `links`.
  Status Fill(const ByteView& bytes, const LinkResolver& links, std::int64_t most_bytes,
              Sample& sample) const;

 private:
  struct Field {
    std::string name;
    std::string link;
    TarKind kind = TarKind::kFile;
    std::string_view refusal;  // text of the parser, which lives for ever
    std::int64_t data_at = 0;
    std::int64_t size_bytes = 0;
  };

  KeyRule rule_;
  std::string key_;
  std::vector<Field> fields_;  // the first `field_count_`; the others keep their memory
  std::size_t field_count_ = 0;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_WEBDATASET_RECORD_INTERNAL_H_
