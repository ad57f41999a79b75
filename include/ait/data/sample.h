// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_SAMPLE_H_
#define AIT_DATA_SAMPLE_H_

// One sample of a dataset: a key and named fields, whatever file it came from.
//
// A member of a WebDataset tar, a column of MDS, a feature of a line of JSON: all become a field, a
// name with bytes. A field that holds an array (a row of an npy file, a decoded image) says so by
// dtype and shape; any other is text or an encoded file, and its shape is empty.
//
//   const SampleField* image = sample.Find("jpg");
//   if (image == nullptr) return NotFoundError("sample ", sample.key, " has no jpg");
//   Decode(image->value.bytes());
//
// **Thread-safety.** As of a std::vector; the bytes of the fields are shared and never change.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/data/byte_view.h"

namespace ait::inline v0 {

/// What the bytes of a field are.
enum class FieldKind : std::uint8_t {
  kBytes,  // an encoded file or anything else; `dtype` and `shape` say nothing
  kText,   // UTF-8
  kArray,  // `dtype` numbers of `shape`, row by row, in the byte order of this machine
};

struct SampleField {
  std::string name;  // such as "jpg", "cls", "tokens"; unique within a sample
  ByteView value;
  FieldKind kind = FieldKind::kBytes;
  DType dtype = DType::kUInt8;
  std::vector<std::int64_t> shape;  // of an array; empty: one number
};

struct Sample {
  std::int64_t id = -1;  // its number in the SampleSource it came from
  std::string key;       // such as "n01440764/0001"; bytes, unique within a shard
  std::vector<SampleField> fields;

  /// The field of that name; nullptr if there is none.
  const SampleField* Find(std::string_view name) const;
  SampleField* Find(std::string_view name);
  /// Bytes of all fields together.
  std::int64_t size_bytes() const;
  /// Sets a field, adding it if it is missing.
  void Set(SampleField field);
  /// Removes a field if it is there.
  void Remove(std::string_view name);
};

/// Numbers in an array of this shape: the product, 1 for an empty shape. −1 if a dimension is
/// negative or the product is no int64.
std::int64_t ElementCount(const std::vector<std::int64_t>& shape);

/// Makes an array field that owns a copy of `values`.
SampleField ArrayField(std::string name, DType dtype, std::vector<std::int64_t> shape,
                       std::span<const std::byte> values);

}  // namespace ait::inline v0

#endif  // AIT_DATA_SAMPLE_H_
