// SPDX-License-Identifier: Apache-2.0
// WebDataset tars: the table of records and the reading in one pass agree, on samples and on errors.
#include "ait/data/format/formats.h"
#include "data/format/format_test_support.h"
#include "data/format/webdataset_internal.h"
#include "fuzz/fuzz.h"

namespace ait::testing {

std::vector<std::string> FuzzSeeds() {
  const std::string path(120, 'p');
  TarEntry base256 = {"d.txt", "base-256"};
  base256.size_field = std::string("\x80\0\0\0\0\0\0\0\0\0\0\x08", 12);
  return {TarBytes({{"a.jpg", std::string(700, 'j')}, {"a.cls", "1"}, {"b.jpg", "y"}}),
          TarBytes({{"x", PaxRecord("path", path + ".txt") + PaxRecord("size", "4"), 'x'},
                    {path.substr(0, 100), "long"},
                    {"b.txt", "", '1', "a.jpg"}}),
          TarBytes({{"././@LongLink", path + '\0', 'L'},
                    {path.substr(0, 100), "gnu"},
                    {"g", PaxRecord("comment", "c"), 'g'},
                    base256,
                    {"dir/", "", '5'},
                    {"e.txt", "", '2', "a"}})};
}

}  // namespace ait::testing

namespace ait {

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteView input = testing::Copied(data, size);
  const auto object = MemoryObject("input", input);
  const ShardOptions options = {.format = "webdataset"};
  const StatusOr<std::unique_ptr<ShardReader>> shard = OpenShard(object, options);
  const StatusOr<std::unique_ptr<SampleStream>> stream = internal::StreamTar(
      object, options, {.block_bytes = 1 + static_cast<std::int64_t>(size % 2000)}, nullptr);
  if (!stream.ok()) {
    AIT_FUZZ_CHECK(!shard.ok());
    return 0;
  }
  Sample streamed;
  std::int64_t record = 0;
  while (true) {
    const StatusOr<bool> is_there = (*stream)->Next(streamed);
    if (!shard.ok()) {  // what is wrong with the shard is found before its end
      if (is_there.ok()) {
        AIT_FUZZ_CHECK(*is_there);
      } else if (++record > 5) {
        return 0;
      }
      continue;
    }
    if (is_there.ok() && !*is_there) break;
    AIT_FUZZ_CHECK(record < (*shard)->record_count());
    const StatusOr<Sample> read = (*shard)->ReadRecord(record++);
    AIT_FUZZ_CHECK(read.status() == is_there.status());
    if (read.ok()) AIT_FUZZ_CHECK(testing::Shown(*read) == testing::Shown(streamed));
  }
  AIT_FUZZ_CHECK(record == (*shard)->record_count());
  return 0;
}

}  // namespace ait
