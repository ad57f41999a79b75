// SPDX-License-Identifier: Apache-2.0
// What a tar is read as: names, kinds of members, ends, damage.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "ait/data/format/formats.h"
#include "data/format/format_test_support.h"
#include "data/format/webdataset_internal.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::PaxRecord;
using ::ait::testing::ShownByRecord;
using ::ait::testing::ShownOf;
using ::ait::testing::StatusIs;
using ::ait::testing::TarBytes;
using ::ait::testing::TarEntry;
using ::ait::testing::TarMemberBytes;
using Shown = std::vector<std::string>;

std::shared_ptr<const StoredObject> Object(const std::string& bytes) {
  return MemoryObject("x.tar", ByteView::Copy(bytes));
}

StatusOr<Shown> ByTable(const std::string& bytes, const ShardOptions& options = {}) {
  AIT_ASSIGN_OR_RETURN(const auto shard, OpenShard(Object(bytes), options));
  return ShownByRecord(*shard);
}

StatusOr<Shown> InOnePass(const std::string& bytes, const ShardOptions& options = {},
                          std::int64_t block_bytes = 4096) {
  AIT_ASSIGN_OR_RETURN(
      const auto stream,
      internal::StreamTar(Object(bytes), options, {.block_bytes = block_bytes}, nullptr));
  return ShownOf(*stream);
}

// The same by both ways of reading.
StatusOr<Shown> Both(const std::string& bytes, const ShardOptions& options = {}) {
  const StatusOr<Shown> table = ByTable(bytes, options);
  const StatusOr<Shown> pass = InOnePass(bytes, options);
  EXPECT_EQ(table.ok(), pass.ok()) << table.status() << " / " << pass.status();
  EXPECT_EQ(table.status().code(), pass.status().code());
  if (table.ok() && pass.ok()) {
    EXPECT_EQ(*table, *pass);
  }
  return pass;
}

#define EXPECT_SAMPLES(bytes, ...)                       \
  do {                                                   \
    ASSERT_OK_AND_ASSIGN(const Shown read, Both(bytes)); \
    EXPECT_EQ(read, (Shown __VA_ARGS__));                \
  } while (false)

TEST(WebDatasetTest, FilesOfOneNameAreOneSample) {
  EXPECT_SAMPLES(TarBytes({{"a/0.jpg", "jpeg"}, {"a/0.cls", "7"}, {"a/1.cls", "8"}}),
                 {"a/0{jpg=jpeg,cls=7}", "a/1{cls=8}"});
}

TEST(WebDatasetTest, TheRuleOfNames) {
  // Key and extension as the reference gives them, or nothing.
  const auto split = [](std::string_view name) -> std::string {
    const internal::KeyedName s = internal::SplitName(name, KeyRule::kFirstDot);
    return s.is_field ? StrCat("(", s.key, ", ", s.extension, ")") : "ignored";
  };
  EXPECT_EQ(split("a/b.c.jpg"), "(a/b, c.jpg)");
  EXPECT_EQ(split("a.b/c.d"), "(a.b/c, d)");
  EXPECT_EQ(split("x"), "ignored");
  EXPECT_EQ(split(".jpg"), "ignored");
  EXPECT_EQ(split("a.b/c"), "ignored");
  EXPECT_EQ(split("dir/.hidden"), "(dir/, hidden)");
  EXPECT_EQ(split("a.b/.hidden"), "ignored");
  EXPECT_EQ(split("a.b/c/.hidden"), "(a.b/c/, hidden)");
  EXPECT_EQ(split("a..b"), "(a, .b)");
  EXPECT_EQ(split("a/b."), "(a/b, )");
  EXPECT_EQ(split("./a.jpg"), "(./a, jpg)");
  EXPECT_EQ(split("__key__"), "ignored");
  EXPECT_EQ(split("__meta__/x.json"), "ignored");
  EXPECT_EQ(split("____"), "ignored");
  EXPECT_EQ(split("__a.b"), "(__a, b)");
  EXPECT_EQ(split("__a__.b"), "(__a__, b)");
  EXPECT_EQ(split("a/__b__/c.d"), "(a/__b__/c, d)");
  EXPECT_EQ(split(""), "ignored");
}

TEST(WebDatasetTest, TheLastDotIfAskedFor) {
  const std::string bytes = TarBytes({{"v1.5/a.b.jpg", "x"}, {"v1.5/a.b.cls", "1"}});
  ASSERT_OK_AND_ASSIGN(const Shown read, Both(bytes, {.key_rule = KeyRule::kLastDot}));
  EXPECT_EQ(read, (Shown{"v1.5/a.b{jpg=x,cls=1}"}));
}

TEST(WebDatasetTest, ExtensionsAreLowerCase) {
  EXPECT_SAMPLES(TarBytes({{"A.JPG", "x"}, {"A.Cls", "1"}}), {"A{jpg=x,cls=1}"});
}

TEST(WebDatasetTest, WhatIsNoFieldIsLeftOut) {
  EXPECT_SAMPLES(TarBytes({{"a/", "", '5'},
                           {"a/__note__", "n"},
                           {"a/README", "r"},
                           {"__meta__.json", "kept"},
                           {"__info__/x.json", "m"},
                           {"a/0.jpg", "x"},
                           {"between", "y"},
                           {"a/0.cls", "1"},
                           {"after", "z"}}),
                 {"__meta__{json=kept}", "a/0{jpg=x,cls=1}"});
}

TEST(WebDatasetTest, EmptyFilesAndEmptyArchives) {
  EXPECT_SAMPLES(TarBytes({{"a.txt", ""}}), {"a{txt=}"});
  EXPECT_SAMPLES(TarBytes({}), {});
  EXPECT_THAT(Both(""), StatusIs(StatusCode::kDataLoss));
}

TEST(WebDatasetTest, ASecondFileOfOneNameIsABadSample) {
  const std::string bytes =
      TarBytes({{"a.jpg", "1"}, {"a.JPG", "2"}, {"b.jpg", "3"}, {"c.jpg", "4"}});
  ASSERT_OK_AND_ASSIGN(const auto stream, internal::StreamTar(Object(bytes), {}, {}, nullptr));
  Sample sample;
  const Status status = stream->Next(sample).status();
  EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument));
  EXPECT_NE(Message(status).find("x.tar at byte 0: sample 'a' has two fields 'jpg'"),
            std::string::npos)
      << status;
  ASSERT_OK_AND_ASSIGN(const Shown rest, ShownOf(*stream));
  EXPECT_EQ(rest, (Shown{"b{jpg=3}", "c{jpg=4}"}));
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Object(bytes)));
  EXPECT_EQ(shard->record_count(), 3);
  EXPECT_THAT(shard->ReadRecord(0), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(shard->ReadRecord(1).status());
}

TEST(WebDatasetTest, FilesOfASampleMustLieTogether) {
  EXPECT_THAT(Both(TarBytes({{"a.jpg", "1"}, {"b.jpg", "2"}, {"a.cls", "3"}})),
              StatusIs(StatusCode::kInvalidArgument));
}

// --- names and numbers -----------------------------------------------------------------------

TEST(WebDatasetTest, LongNames) {
  const std::string directory(60, 'd');
  const std::string base(134, 'b');
  const std::string path = directory + "/" + base + ".txt";
  EXPECT_SAMPLES(TarBytes({{std::string(96, 'n') + ".txt", "full"}}),
                 {std::string(96, 'n') + "{txt=full}"});
  TarEntry prefixed = {"file.txt", "p"};
  prefixed.prefix = directory;
  EXPECT_SAMPLES(TarBytes({prefixed}), {directory + "/file{txt=p}"});
  prefixed.magic = std::string("ustar  \0", 8);  // GNU has other things in the place of the prefix
  EXPECT_SAMPLES(TarBytes({prefixed}), {"file{txt=p}"});
  EXPECT_SAMPLES(TarBytes({{"././@LongLink", path + '\0', 'L'}, {path.substr(0, 100), "gnu"}}),
                 {directory + "/" + base + "{txt=gnu}"});
  EXPECT_SAMPLES(
      TarBytes({{"PaxHeaders/x", PaxRecord("path", path), 'x'}, {path.substr(0, 100), "pax"}}),
      {directory + "/" + base + "{txt=pax}"});
}

TEST(WebDatasetTest, NamesAreBytes) {
  EXPECT_SAMPLES(TarBytes({{"gr\xc3\xbc\xc3\x9f"
                            "e.txt",
                            "x"},
                           {"\xff\xfe.txt", "y"}}),
                 {"gr\xc3\xbc\xc3\x9f"
                  "e{txt=x}",
                  "\xff\xfe{txt=y}"});
  EXPECT_SAMPLES(TarBytes({{"PaxHeaders/x",
                            PaxRecord("path",
                                      "gr\xc3\xbc\xc3\x9f"
                                      "e.txt"),
                            'x'},
                           {"gr??e.txt", "x"}}),
                 {"gr\xc3\xbc\xc3\x9f"
                  "e{txt=x}"});
}

TEST(WebDatasetTest, SizesInBase256AndInPax) {
  TarEntry entry = {"a.txt", "base-256"};
  entry.size_field = std::string("\x80\0\0\0\0\0\0\0\0\0\0\x08", 12);
  EXPECT_SAMPLES(TarBytes({entry, {"b.txt", "x"}}), {"a{txt=base-256}", "b{txt=x}"});
  entry.size_field = "00000000000 ";
  EXPECT_SAMPLES(TarBytes({{"PaxHeaders/a", PaxRecord("size", "8"), 'x'}, entry, {"b.txt", "x"}}),
                 {"a{txt=base-256}", "b{txt=x}"});
  entry.size_field = std::string("         10\0", 12);
  EXPECT_SAMPLES(TarBytes({entry}), {"a{txt=base-256}"});
  for (const char* bad : {"0000000001 9", "           \0", "-00000000001", "000000000x1"}) {
    entry.size_field = std::string(bad, 12);
    EXPECT_THAT(Both(TarBytes({entry})), StatusIs(StatusCode::kDataLoss)) << bad;
  }
  entry.size_field = std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
  EXPECT_THAT(Both(TarBytes({entry})), StatusIs(StatusCode::kDataLoss));
  entry.size_field = std::string("\x80\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
  EXPECT_THAT(Both(TarBytes({entry})), StatusIs(StatusCode::kDataLoss));
  entry.size_field = std::string("\x80\0\0\0\0\x7f\xff\xff\xff\xff\xff\xff", 12);
  EXPECT_THAT(Both(TarBytes({entry})), StatusIs(StatusCode::kDataLoss));
}

TEST(WebDatasetTest, PaxRecords) {
  const auto with = [](const std::string& records) {
    return TarBytes({{"PaxHeaders/a", records, 'x'}, {"a.txt", "x"}, {"b.txt", "y"}});
  };
  EXPECT_SAMPLES(with(PaxRecord("mtime", "1.5") + PaxRecord("path", "c.txt") +
                      PaxRecord("SCHILY.xattr.user", std::string("\0\n=", 3))),
                 {"c{txt=x}", "b{txt=y}"});  // and only for the member that follows
  EXPECT_SAMPLES(with(PaxRecord("path", "")), {"a{txt=x}", "b{txt=y}"});
  EXPECT_SAMPLES(with(PaxRecord("path", "c.txt") + PaxRecord("path", "d.txt")),
                 {"d{txt=x}", "b{txt=y}"});
  for (const std::string& bad :
       {std::string("path=a\n"), std::string("99 path=a\n"), std::string("10 path=a\0", 10),
        std::string("9 path=ab"), std::string("6 =ab\n"), std::string("7 pathb\n"),
        std::string("99999999999999999999 a=b\n"), std::string("0 a=b\n"), PaxRecord("size", "-1"),
        PaxRecord("size", "1x"), PaxRecord("size", "9223372036854775807"),
        PaxRecord("path", std::string("a\0b", 3))}) {
    EXPECT_THAT(Both(with(bad)), StatusIs(StatusCode::kDataLoss)) << bad;
  }
}

TEST(WebDatasetTest, GlobalPaxHeaders) {
  EXPECT_SAMPLES(
      TarBytes({{"pax_global_header", PaxRecord("comment", "abc"), 'g'}, {"a.txt", "x"}}),
      {"a{txt=x}"});
  for (const char* key : {"path", "size", "linkpath", "GNU.sparse.major"}) {
    EXPECT_THAT(Both(TarBytes({{"pax_global_header", PaxRecord(key, "1"), 'g'}, {"a.txt", "x"}})),
                StatusIs(StatusCode::kInvalidArgument))
        << key;
  }
}

// --- kinds of members --------------------------------------------------------------------------

TEST(WebDatasetTest, HardLinksAreTheFileTheyName) {
  EXPECT_SAMPLES(TarBytes({{"a.jpg", "picture"}, {"b.jpg", "", '1', "a.jpg"}, {"b.cls", "2"}}),
                 {"a{jpg=picture}", "b{jpg=picture,cls=2}"});
  const std::string longer(150, 'n');
  EXPECT_SAMPLES(TarBytes({{"././@LongLink", longer + ".a" + '\0', 'L'},
                           {longer.substr(0, 100), "1"},
                           {"././@LongLink", longer + ".a" + '\0', 'K'},
                           {"b.a", "", '1', longer.substr(0, 100)}}),
                 {longer + "{a=1}", "b{a=1}"});
  EXPECT_SAMPLES(TarBytes({{"PaxHeaders/x", PaxRecord("path", longer + ".a"), 'x'},
                           {longer.substr(0, 100), "1"},
                           {"PaxHeaders/x", PaxRecord("linkpath", longer + ".a"), 'x'},
                           {"b.a", "", '1', longer.substr(0, 100)}}),
                 {longer + "{a=1}", "b{a=1}"});
}

TEST(WebDatasetTest, WhatIsNotInTheArchiveIsABadSample) {
  const std::string bytes = TarBytes({{"a.jpg", "1"},
                                      {"b.jpg", "", '1', "elsewhere.jpg"},  // a link to nothing
                                      {"c.jpg", "", '2', "a.jpg"},          // symbolic
                                      {"d.jpg", "", '3'},
                                      {"e.jpg", "", '6'},
                                      {"f.jpg", "sparse", 'S'},
                                      {"PaxHeaders/g", PaxRecord("GNU.sparse.major", "1"), 'x'},
                                      {"g.jpg", "sparse"},
                                      {"h.jpg", "rest", 'M'},
                                      {"i.jpg", "?", 'Q'},
                                      {"j.jpg", "2"}});
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Object(bytes)));
  ASSERT_OK_AND_ASSIGN(const auto stream, internal::StreamTar(Object(bytes), {}, {}, nullptr));
  ASSERT_EQ(shard->record_count(), 10);
  for (int i = 0; i < 10; ++i) {
    Sample sample;
    const Status by_stream = stream->Next(sample).status();
    const Status by_table = shard->ReadRecord(i).status();
    EXPECT_EQ(by_stream, by_table);
    if (i == 0 || i == 9) {
      EXPECT_OK(by_table);
    } else {
      EXPECT_THAT(by_table, StatusIs(StatusCode::kInvalidArgument));
      const std::string name = StrCat("'", static_cast<char>('a' + i), ".jpg'");
      EXPECT_NE(Message(by_table).find(name), std::string::npos) << by_table;
    }
  }
  // Names without a field harm nobody.
  EXPECT_SAMPLES(TarBytes({{"current", "", '2', "a.jpg"}, {"a.jpg", "1"}}), {"a{jpg=1}"});
}

TEST(WebDatasetTest, ASparseFileOfPaxSpoilsTheSampleThatItBelongsTo) {
  // The header of the file itself has a name that GNU tar made up.
  const std::string records =
      PaxRecord("GNU.sparse.major", "1") + PaxRecord("GNU.sparse.minor", "0") +
      PaxRecord("GNU.sparse.name", "a.jpg") + PaxRecord("path", "./GNUSparseFile.14830/a.jpg");
  const std::string bytes = TarBytes({{"a.cls", "1"},
                                      {"PaxHeaders/a.jpg", records, 'x'},
                                      {"./GNUSparseFile.14830/a.jpg", "map and data"},
                                      {"b.cls", "2"}});
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Object(bytes)));
  ASSERT_OK_AND_ASSIGN(const auto stream, internal::StreamTar(Object(bytes), {}, {}, nullptr));
  ASSERT_EQ(shard->record_count(), 2);
  Sample sample;
  for (const Status& status : {shard->ReadRecord(0).status(), stream->Next(sample).status()}) {
    EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument));
    EXPECT_NE(Message(status).find("'a.jpg' is a sparse file"), std::string::npos) << status;
  }
  EXPECT_OK(shard->ReadRecord(1).status());
  ASSERT_OK_AND_ASSIGN(const Shown rest, ShownOf(*stream));
  EXPECT_EQ(rest, (Shown{"b{cls=2}"}));
}

TEST(WebDatasetTest, OldKindsOfFiles) {
  TarEntry v7 = {"a.txt", "v7", '\0'};
  v7.magic = std::string(8, '\0');
  EXPECT_SAMPLES(TarBytes({{"dir.x/", "", '\0'}, v7, {"b.txt", "contiguous", '7'}}),
                 {"a{txt=v7}", "b{txt=contiguous}"});
}

// --- ends and damage -----------------------------------------------------------------------------

TEST(WebDatasetTest, ArchivesMayFollowEachOther) {
  EXPECT_SAMPLES(TarBytes({{"a.txt", "1"}}, 20) + TarBytes({{"b.txt", "2"}}, 2),
                 {"a{txt=1}", "b{txt=2}"});
  // A sample does not go on in the next one; found by fuzzing.
  EXPECT_THAT(Both(TarBytes({{"a.txt", "1"}}) + TarBytes({{"a.cls", "2"}})),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Both(TarBytes({{"a.txt", "1"}}, 1) + TarBytes({{"b.txt", "2"}})),
              StatusIs(StatusCode::kDataLoss));
}

TEST(WebDatasetTest, TheEndMustBeMarked) {
  EXPECT_THAT(Both(TarBytes({{"a.txt", "1"}}, 0)), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(Both(TarBytes({{"a.txt", "1"}}, 1)), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(Both(TarBytes({{"a.txt", "1"}}) + std::string(511, '\0')),
              StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(Both(TarBytes({{"a.txt", "1"}}) + std::string(512, 'x')),
              StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(Both(TarBytes({{"PaxHeaders/a", PaxRecord("path", "b"), 'x'}})),
              StatusIs(StatusCode::kDataLoss));
}

TEST(WebDatasetTest, TruncatedAtAnyByteItIsAnError) {
  const std::string path(120, 'p');
  const std::string whole = TarBytes({{"a.jpg", std::string(700, 'j')},
                                      {"a.cls", "1"},
                                      {"PaxHeaders/x", PaxRecord("path", path + ".txt"), 'x'},
                                      {path.substr(0, 100), "long"},
                                      {"b.txt", ""}});
  ASSERT_OK_AND_ASSIGN(const Shown all, Both(whole));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string cut = whole.substr(0, length);
    EXPECT_THAT(ByTable(cut, {.format = "webdataset"}), StatusIs(StatusCode::kDataLoss)) << length;
    // In one pass the samples before the cut are whole.
    const auto stream = internal::StreamTar(Object(cut), {}, {.block_bytes = 700}, nullptr);
    if (!stream.ok()) {
      EXPECT_THAT(stream.status(), StatusIs(StatusCode::kDataLoss)) << length;
      continue;
    }
    Sample sample;
    for (std::size_t i = 0;; ++i) {
      const StatusOr<bool> is_there = (*stream)->Next(sample);
      if (!is_there.ok()) {
        EXPECT_THAT(is_there.status(), StatusIs(StatusCode::kDataLoss)) << length;
        break;
      }
      ASSERT_TRUE(*is_there) << length;
      ASSERT_LT(i, all.size());
      EXPECT_EQ(testing::Shown(sample), all[i]);
    }
  }
}

TEST(WebDatasetTest, AnyChangedBitOfAHeaderIsNoticed) {
  const std::string whole = TarBytes({{"a.jpg", "x"}, {"b.jpg", "y"}});
  ASSERT_OK_AND_ASSIGN(const Shown all, Both(whole));
  for (std::size_t bit = 0; bit < 8 * 512; ++bit) {
    std::string damaged = whole;
    damaged[1024 + bit / 8] ^= static_cast<char>(1 << (bit % 8));
    const StatusOr<Shown> read = Both(damaged);
    // The padding after the digits of the sum may be a blank or a zero.
    if (read.ok()) {
      EXPECT_EQ(*read, all) << bit;
    }
  }
}

TEST(WebDatasetTest, ManyHeadersOfOneMemberAreReadOnceAndNotWithoutEnd) {
  const auto chain = [](int headers) {
    std::string bytes;
    for (int i = 0; i < headers; ++i) bytes += TarMemberBytes({"PaxHeaders/a", "", 'x'});
    return bytes;
  };
  EXPECT_SAMPLES(chain(8000) + TarBytes({{"a.txt", "1"}, {"b.txt", "2"}}),
                 {"a{txt=1}", "b{txt=2}"});
  EXPECT_THAT(Both(chain(8000)), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(Both(chain(100'000) + TarBytes({{"a.txt", "1"}})), StatusIs(StatusCode::kDataLoss));
}

TEST(WebDatasetTest, RandomDamageNeverCrashes) {
  const std::string path(120, 'p');
  const std::string whole = TarBytes({{"a.jpg", std::string(700, 'j')},
                                      {"PaxHeaders/x", PaxRecord("path", path + ".txt"), 'x'},
                                      {path.substr(0, 100), "long"},
                                      {"b.txt", "", '1', "a.jpg"}});
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 1 + round % 4; ++i) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    Both(damaged, {.format = "webdataset"}).IgnoreError();
  }
}

TEST(WebDatasetTest, WhateverTheSizeOfABlock) {
  std::vector<TarEntry> entries;
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    entries.push_back(
        {StrCat(i, ".a"), std::string(random() % 3000, static_cast<char>('a' + i % 26))});
    if (i % 3 == 0) entries.push_back({"ignored", std::string(random() % 5000, '-')});
    entries.push_back({StrCat(i, ".b"), std::string(random() % 50, 'b')});
  }
  const std::string bytes = TarBytes(entries, 19);
  ASSERT_OK_AND_ASSIGN(const Shown expected, ByTable(bytes));
  EXPECT_EQ(expected.size(), 60u);
  for (const std::int64_t block_bytes : {1, 100, 511, 512, 513, 1000, 1024, 5000, 8192, 1 << 20}) {
    ASSERT_OK_AND_ASSIGN(const Shown read, InOnePass(bytes, {}, block_bytes));
    EXPECT_EQ(read, expected) << block_bytes;
  }
}

TEST(WebDatasetTest, SamplesKeptByTheCallerStayAsTheyAre) {
  std::vector<TarEntry> entries;
  for (int i = 0; i < 50; ++i) entries.push_back({StrCat(i, ".a"), StrCat("value ", i)});
  ASSERT_OK_AND_ASSIGN(const auto stream, internal::StreamTar(Object(TarBytes(entries)), {},
                                                              {.block_bytes = 1000}, nullptr));
  std::vector<Sample> kept;
  Sample sample;
  while (*stream->Next(sample)) kept.push_back(sample);
  ASSERT_EQ(kept.size(), 50u);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(testing::Shown(kept[static_cast<std::size_t>(i)]), StrCat(i, "{a=value ", i, "}"));
  }
}

TEST(WebDatasetTest, RecordsLargerThanIsBelievedAreBad) {
  const std::string bytes = TarBytes({{"a.x", std::string(5000, 'x')}, {"b.x", "1"}});
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Object(bytes), {.max_record_bytes = 2048}));
  EXPECT_THAT(shard->ReadRecord(0), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(shard->ReadRecord(1).status());
  EXPECT_THAT(InOnePass(bytes, {.max_record_bytes = 2048}), StatusIs(StatusCode::kInvalidArgument));
}

TEST(WebDatasetTest, AStreamGoesOnAfterASampleThatIsTooLarge) {
  const std::string large(5000, 'x');
  const std::string bytes = TarBytes({{"a.x", "1"},
                                      {"b.x", large},
                                      {"b.y", "2"},
                                      {"c.x", "3"},
                                      {"d.x", "4"},
                                      {"ignored", large},  // and in the middle of a sample
                                      {"d.y", "5"},
                                      {"e.x", "6"}});
  const ShardOptions options = {.max_record_bytes = 2048};
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Object(bytes), options));
  ASSERT_EQ(shard->record_count(), 5);
  for (const std::int64_t block_bytes : {100, 512, 4096, 1 << 20}) {
    ASSERT_OK_AND_ASSIGN(
        const auto stream,
        internal::StreamTar(Object(bytes), options, {.block_bytes = block_bytes}, nullptr));
    for (int i = 0; i < 5; ++i) {
      Sample sample;
      const Status by_table = shard->ReadRecord(i).status();
      const Status by_stream = stream->Next(sample).status();
      EXPECT_EQ(by_table.code(), by_stream.code()) << i;
      EXPECT_EQ(by_stream.code(), i == 1 || i == 3 ? StatusCode::kInvalidArgument : StatusCode::kOk)
          << i << by_stream;
    }
    Sample sample;
    ASSERT_OK_AND_ASSIGN(const bool is_there, stream->Next(sample));
    EXPECT_FALSE(is_there);
  }
}

TEST(WebDatasetTest, WhatIsNoFieldCountsForNoSample) {
  const std::string large(50'000, 'x');
  const std::string bytes = TarBytes({{"before", large},
                                      {"a.x", "1"},
                                      {"between", large},
                                      {"and", large},
                                      {"b.x", "2"},
                                      {"after", large}});
  ASSERT_OK_AND_ASSIGN(const Shown read, Both(bytes, {.max_record_bytes = 2048}));
  EXPECT_EQ(read, (Shown{"a{x=1}", "b{x=2}"}));
  for (const std::int64_t block_bytes : {100, 512, 1000, 1 << 20}) {
    ASSERT_OK_AND_ASSIGN(const Shown pass,
                         InOnePass(bytes, {.max_record_bytes = 2048}, block_bytes));
    EXPECT_EQ(pass, read) << block_bytes;
  }
}

TEST(WebDatasetTest, FilesThatLinksNameCountForTheSampleOnceEach) {
  std::vector<TarEntry> entries;
  for (int i = 0; i < 4; ++i) entries.push_back({StrCat("t", i, ".x"), std::string(1500, 't')});
  for (int i = 0; i < 4; ++i) entries.push_back({StrCat("one.", i), "", '1', "t0.x"});
  for (int i = 0; i < 4; ++i)
    entries.push_back({StrCat("many.", i), "", '1', StrCat("t", i, ".x")});
  const std::string bytes = TarBytes(entries);
  const ShardOptions options = {.max_record_bytes = 4096};
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Object(bytes), options));
  ASSERT_EQ(shard->record_count(), 6);
  ASSERT_OK_AND_ASSIGN(const Sample one, shard->ReadRecord(4));
  ASSERT_EQ(one.fields.size(), 4u);
  for (const SampleField& field : one.fields) {
    EXPECT_EQ(field.value.text(), std::string(1500, 't'));
    EXPECT_EQ(field.value.data(), one.fields[0].value.data());
  }
  EXPECT_THAT(shard->ReadRecord(5), StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK_AND_ASSIGN(const auto stream, internal::StreamTar(Object(bytes), options, {}, nullptr));
  Sample sample;
  for (int i = 0; i < 5; ++i) EXPECT_OK(stream->Next(sample).status());
  EXPECT_THAT(stream->Next(sample), StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ait
