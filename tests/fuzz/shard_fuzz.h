// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_FUZZ_SHARD_FUZZ_H_
#define AIT_TESTS_FUZZ_SHARD_FUZZ_H_

// What any shard of any format must hold, whatever its bytes are.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "ait/data/format/formats.h"
#include "fuzz/fuzz.h"

namespace ait::testing {

/// Files of tests/data/format/testdata.
inline std::vector<std::string> SeedFiles(const std::vector<std::string>& names) {
  std::vector<std::string> seeds;
  for (const std::string& name : names) {
    std::ifstream in(std::string(AIT_FORMAT_TEST_DATA) + "/" + name, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return seeds;
}

inline void CheckSample(const Sample& sample) {
  for (const SampleField& field : sample.fields) {
    if (field.kind != FieldKind::kArray) continue;
    AIT_FUZZ_CHECK(ElementCount(field.shape) * SizeOf(field.dtype) ==
                   static_cast<std::int64_t>(field.value.size_bytes()));
  }
}

/// Opens the input as `format`. Records lie within the object; reading them one by one and by a
/// stream gives the same, errors too.
inline void FuzzShard(const std::string& format, const ByteView& input) {
  const ShardOptions options = {
      .format = format, .max_record_bytes = 1 << 20, .max_unpacked_bytes = 1 << 22};
  const auto shard = OpenShard(MemoryObject("input", input), options);
  if (!shard.ok()) return;
  const std::int64_t size = (*shard)->object().info().size_bytes;
  const std::int64_t count = std::min<std::int64_t>((*shard)->record_count(), 100);
  AIT_FUZZ_CHECK(count >= 0);
  const auto stream = (*shard)->Stream({.block_bytes = 4096});
  Sample next;
  for (std::int64_t i = 0; i < count; ++i) {
    const RecordExtent extent = (*shard)->extent(i);
    AIT_FUZZ_CHECK(extent.offset_bytes >= 0 && extent.length_bytes >= 0 &&
                   extent.offset_bytes <= size &&
                   extent.length_bytes <= size - extent.offset_bytes);
    const StatusOr<Sample> sample = (*shard)->ReadRecord(i);
    if (sample.ok()) CheckSample(*sample);
    if (!stream.ok()) continue;
    const StatusOr<bool> is_there = (*stream)->Next(next);
    AIT_FUZZ_CHECK(is_there.ok() == sample.ok());
    if (!sample.ok()) continue;
    AIT_FUZZ_CHECK(*is_there && next.key == sample->key &&
                   next.fields.size() == sample->fields.size());
    for (std::size_t j = 0; j < next.fields.size(); ++j) {
      AIT_FUZZ_CHECK(next.fields[j].value.text() == sample->fields[j].value.text());
    }
  }
}

}  // namespace ait::testing

#endif  // AIT_TESTS_FUZZ_SHARD_FUZZ_H_
