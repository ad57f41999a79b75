// SPDX-License-Identifier: Apache-2.0
#include "ait/data/sample_source.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ait {
namespace {

// The least that a program has to write.
class Letters final : public SampleSource {
 public:
  const std::string& name() const override { return name_; }
  std::int64_t sample_count() const override { return 26; }
  std::uint64_t digest() const override { return 26; }
  std::int64_t size_bytes(std::int64_t) const override { return 1; }
  void Read(std::span<SampleRead> reads) const override {
    for (SampleRead& read : reads) {
      if (read.id < 0 || read.id >= 26) {
        read.status = OutOfRangeError("no letter ", read.id);
        continue;
      }
      read.sample = Sample{.id = read.id, .key = std::string(1, static_cast<char>('a' + read.id))};
      read.status = OkStatus();
    }
  }

 private:
  const std::string name_ = "letters";
};

TEST(SampleSourceTest, AProgramMayBringItsOwn) {
  const Letters letters;
  std::vector<SampleRead> reads = {{.id = 25}, {.id = 26}, {.id = 0}};
  letters.Read(reads);
  EXPECT_EQ(reads[0].sample.key, "z");
  EXPECT_EQ(reads[1].status.code(), StatusCode::kOutOfRange);
  EXPECT_TRUE(reads[2].status.ok());
}

TEST(SampleSourceTest, WithoutMoreKnowledgeItIsOneBlockAndPlacesAreNumbers) {
  const Letters letters;
  EXPECT_TRUE(letters.block_begins().empty());
  EXPECT_EQ(letters.place(7).url, "letters#7");
}

}  // namespace
}  // namespace ait
