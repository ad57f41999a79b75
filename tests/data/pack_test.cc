// SPDX-License-Identifier: Apache-2.0
#include "ait/data/pack.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>
#include <zlib.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "ait/data/token_dataset.h"
#include "ait/data/token_source.h"
#include "data/data_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::NamesIn;
using ::ait::testing::Process;
using ::ait::testing::ReadBytes;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::WriteBytes;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// What zlib makes of `text`; with the extra field of dictzip if asked for.
std::string Gzip(std::string text, std::string extra = "") {
  z_stream zlib = {};
  deflateInit2(&zlib, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  gz_header header = {};
  header.extra = reinterpret_cast<Bytef*>(extra.data());
  header.extra_len = static_cast<uInt>(extra.size());
  if (!extra.empty()) deflateSetHeader(&zlib, &header);
  std::string packed(text.size() + extra.size() + 1000, '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(text.data());
  zlib.avail_in = static_cast<uInt>(text.size());
  zlib.next_out = reinterpret_cast<Bytef*>(packed.data());
  zlib.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&zlib, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - zlib.avail_out);
  deflateEnd(&zlib);
  return packed;
}

std::string Words(std::size_t length, unsigned seed = 1) {
  std::string text;
  while (text.size() < length) {
    seed = seed * 1664525u + 1013904223u;
    text += "word" + std::to_string(seed >> 20) + ((seed >> 8) % 7 == 0 ? ".\n" : " ");
  }
  text.resize(length);
  return text;
}

// The tokens of a packed corpus, as a string.
std::string Unpack(const std::string& directory) {
  const auto source = OpenTokenSource(directory);
  EXPECT_OK(source);
  if (!source.ok()) return "";
  std::vector<std::int64_t> tokens(static_cast<std::size_t>((*source)->token_count()));
  EXPECT_OK((*source)->Read(0, tokens));
  return {tokens.begin(), tokens.end()};
}

class PackTextTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    WriteBytes(directory_ / name, bytes);
    return directory_ / name;
  }
  StatusOr<PackReport> Pack(const std::vector<std::string>& files,
                            std::int64_t shard_tokens = 1 << 20,
                            ExistingCorpus existing = ExistingCorpus::kRefuse) {
    return PackText(files, {.directory = out_, .shard_tokens = shard_tokens, .existing = existing});
  }

  const TempDir directory_;
  const std::string out_ = directory_ / "out";
};

TEST_F(PackTextTest, TokensAreBytesAndEveryDocumentEndsWithASeparator) {
  ASSERT_OK_AND_ASSIGN(const PackReport report,
                       Pack({Write("a", "Hello\n"), Write("b", "\xc3\xa9\xff")}));
  EXPECT_EQ(report.documents, 2);
  EXPECT_EQ(report.tokens, 11);
  EXPECT_EQ(report.shards, 1);
  EXPECT_EQ(report.vocabulary_size, 256);
  EXPECT_FALSE(report.was_up_to_date);
  EXPECT_EQ(Unpack(out_), std::string("Hello\n\0\xc3\xa9\xff\0", 11));
  EXPECT_THAT(NamesIn(out_), SizeIs(2));
}

TEST_F(PackTextTest, ShardsHoldAtMostSoManyTokensAndReadAsOneStream) {
  const std::string text = Words(99'999);
  const std::string file = Write("a", text);
  for (const auto& [shard_tokens, shards] :
       {std::pair{100'000, 1}, {99'999, 2}, {50'000, 2}, {777, 129}}) {
    const std::string out = directory_ / StrCat("out", shard_tokens);
    ASSERT_OK_AND_ASSIGN(const PackReport report,
                         PackText({file}, {.directory = out, .shard_tokens = shard_tokens}));
    EXPECT_EQ(report.shards, shards);
    EXPECT_THAT(NamesIn(out), SizeIs(shards + 1));
    EXPECT_EQ(Unpack(out), text + '\0');
  }
}

// A state saved with one packing goes on with another.
TEST_F(PackTextTest, ThePlanDoesNotDependOnTheShards) {
  const std::string file = Write("a", Words(10'000));
  std::vector<std::uint64_t> digests;
  for (std::int64_t shard_tokens : {100'000, 1'000}) {
    const std::string out = directory_ / StrCat("out", shard_tokens);
    ASSERT_OK(PackText({file}, {.directory = out, .shard_tokens = shard_tokens}));
    ASSERT_OK_AND_ASSIGN(auto data, TokenDataset::Open(out, {.sequence_length = 16}));
    digests.push_back(data.plan_digest());
    ASSERT_OK_AND_ASSIGN(auto source, OpenTokenSource(out));
    std::vector<std::int64_t> window(17);
    ASSERT_OK(source->Read(995, window));  // over a border of shards
    for (std::size_t i = 0; i < window.size(); ++i) {
      EXPECT_EQ(window[i], Words(10'000)[995 + i]);
    }
  }
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_OK(TokenDataset::Open(out_ + "1000", {.sequence_length = 16})->CheckVocabulary(256));
  EXPECT_THAT(TokenDataset::Open(out_ + "1000", {.sequence_length = 16})->CheckVocabulary(255),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("vocabulary")));
}

TEST_F(PackTextTest, UnpacksGzipOfEveryKind) {
  const std::string text = Words(300'000);
  const std::string dictzip_extra("RA\x08\0\x01\0\xcb\xe3\x01\0\x34\x12", 12);
  ASSERT_OK(
      Pack({Write("plain", text), Write("a.gz", Gzip(text)),
            Write("a.dict.dz", Gzip(text, dictzip_extra)),
            Write("members", Gzip(text.substr(0, 70'000)) + Gzip("") + Gzip(text.substr(70'000))),
            Write("padded.gz", Gzip(text) + std::string(100'000, '\0'))}));
  const std::string document = text + '\0';
  EXPECT_EQ(Unpack(out_), document + document + document + document + document);
}

TEST_F(PackTextTest, FindsDamagedGzip) {
  const std::string good = Gzip(Words(100'000));
  const auto expect_damaged = [&](const std::string& bytes, const char* what) {
    EXPECT_THAT(Pack({Write("a.gz", bytes)}), StatusIs(StatusCode::kDataLoss, HasSubstr("a.gz")))
        << what;
    EXPECT_THAT(NamesIn(out_), SizeIs(0)) << what;
  };
  for (std::size_t length : {good.size() - 1, good.size() - 8, good.size() / 2, std::size_t{10}}) {
    expect_damaged(good.substr(0, length), "truncated");
  }
  for (std::size_t at : {std::size_t{2}, good.size() / 2, good.size() - 6, good.size() - 2}) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    expect_damaged(damaged, "flipped");
  }
  expect_damaged(good + "rubbish", "followed by rubbish");
  std::string second = good;
  second[0] = 'x';
  expect_damaged(good + second, "second member without its magic");
  expect_damaged(good + std::string(3, '\0') + good, "zeros between members");
  expect_damaged("not gzip at all", "name without magic");
}

TEST_F(PackTextTest, RefusesWhatIsNoText) {
  const std::string good = Write("good", "text");
  EXPECT_THAT(Pack({}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("no text files")));
  EXPECT_THAT(Pack({good, directory_ / "gone"}),
              StatusIs(StatusCode::kNotFound, HasSubstr("gone")));
  EXPECT_THAT(Pack({good, Write("empty", "")}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("is empty")));
  EXPECT_FALSE(std::filesystem::exists(out_)) << "nothing is made before all files are there";
  EXPECT_THAT(Pack({good, Write("empty.gz", Gzip(""))}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("is empty")));
  EXPECT_THAT(Pack({good, Write("binary", std::string(70'000, 'x') + std::string("a\0b", 3))}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("byte 0 at offset 70001")));
  EXPECT_THAT(Pack({directory_.path()}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("regular file")));
  EXPECT_THAT(Pack({good}, 0), StatusIs(StatusCode::kInvalidArgument, HasSubstr("shards of 0")));
  EXPECT_THAT(PackText({good}, {}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(PackText({good}, {.directory = good}), Not(::ait::testing::IsOk()));
  EXPECT_THAT(NamesIn(out_), SizeIs(0)) << "what failed leaves nothing";
}

TEST_F(PackTextTest, PackingTheSameAgainDoesNothing) {
  const std::string file = Write("a", Words(5'000));
  ASSERT_OK(Pack({file}, 1'000));
  const auto times = [&] {
    std::vector<std::filesystem::file_time_type> all;
    for (const std::string& name : NamesIn(out_)) {
      all.push_back(std::filesystem::last_write_time(out_ + "/" + name));
    }
    return all;
  };
  const auto before = times();
  std::filesystem::copy_file(file, directory_ / "copy");  // another name, the same text
  ASSERT_OK_AND_ASSIGN(const PackReport report, Pack({directory_ / "copy"}, 1'000));
  EXPECT_TRUE(report.was_up_to_date);
  EXPECT_EQ(report.tokens, 5'001);
  EXPECT_EQ(times(), before);
}

TEST_F(PackTextTest, ReproducesItsBytes) {
  const std::string file = Write("a", Words(5'000));
  ASSERT_OK(Pack({file}, 1'000));
  const std::string other = directory_ / "other";
  ASSERT_OK(PackText({file}, {.directory = other, .shard_tokens = 1'000}));
  ASSERT_EQ(NamesIn(out_), NamesIn(other));
  for (const std::string& name : NamesIn(out_)) {
    EXPECT_EQ(ReadBytes(out_ + "/" + name), ReadBytes(other + "/" + name));
  }
}

TEST_F(PackTextTest, AnotherCorpusIsReplacedOnlyOnRequest) {
  const std::string first = Write("a", Words(5'000));
  const std::string second = Write("b", Words(3'000, 2));
  ASSERT_OK(Pack({first}, 1'000));
  WriteBytes(out_ + "/notes.txt", "mine");
  EXPECT_THAT(Pack({second}, 1'000),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("--force")));
  EXPECT_THAT(Pack({first}, 999), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_EQ(Unpack(out_), Words(5'000) + '\0');
  ASSERT_OK(Pack({second}, 1'000, ExistingCorpus::kReplace));
  EXPECT_EQ(Unpack(out_), Words(3'000, 2) + '\0');
  EXPECT_THAT(NamesIn(out_), SizeIs(4 + 1 + 1)) << "old shards go, other files stay";
  EXPECT_THAT(NamesIn(out_), Contains("notes.txt"));
}

TEST_F(PackTextTest, FailingToReplaceKeepsTheOldCorpus) {
  ASSERT_OK(Pack({Write("a", Words(5'000))}, 1'000));
  const auto names = NamesIn(out_);
  const std::string bad = Write("b", Words(3'000) + std::string(1, '\0'));
  EXPECT_THAT(Pack({bad}, 1'000, ExistingCorpus::kReplace), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(NamesIn(out_), names);
  EXPECT_EQ(Unpack(out_), Words(5'000) + '\0');
}

// Without its manifest a corpus cannot be read, but its shards are all that is left of it.
TEST_F(PackTextTest, AFailureRemovesOnlyWhatItAdded) {
  const std::string good = Write("a", Words(5'000));
  const std::string bad = Write("b", Words(200'000) + '\0');  // fails after some shards
  ASSERT_OK(Pack({good}, 1'000));
  WriteBytes(out_ + "/manifest.json", "{");
  const auto names = NamesIn(out_);
  EXPECT_THAT(Pack({bad}, 1'000, ExistingCorpus::kReplace),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("byte 0")));
  EXPECT_EQ(NamesIn(out_), names);
  EXPECT_THAT(Pack({good, bad}, 1'000, ExistingCorpus::kReplace),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(NamesIn(out_), names);

  std::filesystem::remove(out_ + "/manifest.json");
  const auto shards = NamesIn(out_);
  EXPECT_THAT(shards, SizeIs(6));
  EXPECT_THAT(Pack({bad}, 1'000), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(NamesIn(out_), shards);
}

TEST_F(PackTextTest, FilesWithNamesLikeAShardsAreTheUsers) {
  const std::vector<std::string> mine = {
      "shard-train.tokens",
      "shard-0123456789abcdef.tokens",
      "shard-0123456789abcdef-0001.tokens",
      "shard-0123456789abcdeF-00001.tokens",
      "shard-0123456789abcdef0-00001.tokens",
      "shard-0123456789abcdef-00001-old.tokens",
      "shard-0123456789abcdef-00001.tokens.gz",
      "my-shard-0123456789abcdef-00001.tokens",
  };
  std::filesystem::create_directory(out_);
  for (const std::string& name : mine) WriteBytes(out_ + "/" + name, "mine");
  WriteBytes(out_ + "/shard-0123456789abcdef-00001.tokens", "of a process that was killed");
  WriteBytes(out_ + "/shard-0123456789abcdef-123456.tokens.partial", "of another");
  ASSERT_OK(Pack({Write("a", "text")}));
  for (const std::string& name : mine) EXPECT_THAT(NamesIn(out_), Contains(name));
  EXPECT_THAT(NamesIn(out_), SizeIs(mine.size() + 2)) << "and the shard and its manifest";
}

TEST_F(PackTextTest, RepairsADamagedCorpusOfTheSameText) {
  const std::string file = Write("a", Words(5'000));
  ASSERT_OK(Pack({file}, 1'000));
  const std::string shard = out_ + "/" + NamesIn(out_)[3];
  std::string bytes = ReadBytes(shard);
  bytes[100] = static_cast<char>(bytes[100] ^ 1);
  WriteBytes(shard, bytes);
  EXPECT_THAT(OpenTokenSource(out_), StatusIs(StatusCode::kDataLoss, HasSubstr(shard)));
  ASSERT_OK_AND_ASSIGN(const PackReport report, Pack({file}, 1'000));
  EXPECT_FALSE(report.was_up_to_date);
  EXPECT_EQ(Unpack(out_), Words(5'000) + '\0');
}

TEST_F(PackTextTest, OneProcessPacksIntoADirectoryAtATime) {
  const std::string file = Write("a", "text");
  std::filesystem::create_directory(out_);
  const int fd = ::open(out_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  EXPECT_THAT(Pack({file}), StatusIs(StatusCode::kUnavailable, HasSubstr("another process")));
  ::close(fd);
  EXPECT_OK(Pack({file}));
}

class PackedCorpus : public PackTextTest {
 protected:
  void SetUp() override {
    ASSERT_OK(Pack({Write("a", Words(5'000))}, 1'000));
    names_ = NamesIn(out_);
  }
  std::string Path(std::size_t index) { return out_ + "/" + names_[index]; }
  void ExpectError(StatusCode code, const std::string& reason) {
    for (Verification verification : {Verification::kContents, Verification::kSizes}) {
      EXPECT_THAT(OpenTokenSource(out_, {.verification = verification}),
                  StatusIs(code, HasSubstr(reason)));
    }
  }
  std::vector<std::string> names_;  // "manifest.json" first
};

TEST_F(PackedCorpus, MissesAShardThatIsGoneCutOrAnother) {
  const std::string shard = ReadBytes(Path(2));
  std::filesystem::remove(Path(2));
  ExpectError(StatusCode::kNotFound, Path(2));
  WriteBytes(Path(2), shard.substr(0, 600));
  ExpectError(StatusCode::kDataLoss, "truncated");
  WriteBytes(Path(2), "");
  ExpectError(StatusCode::kDataLoss, "truncated");
  WriteBytes(Path(2), ReadBytes(Path(3)));
  ExpectError(StatusCode::kDataLoss, "not the one that manifest.json lists");
  WriteBytes(Path(2), "another file altogether, of no format that is known, but long enough");
  ExpectError(StatusCode::kDataLoss, "AITTOKEN");
}

TEST_F(PackedCorpus, FindsEveryFlippedBitOfTheManifest) {
  const std::string good = ReadBytes(Path(0));
  ASSERT_OK(OpenTokenSource(out_, {.verification = Verification::kSizes}));
  int harmless = 0;
  for (std::size_t bit = 0; bit < 8 * good.size(); bit += 41) {
    std::string damaged = good;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    WriteBytes(Path(0), damaged);
    // White space is no content: a blank may become a tab or a line.
    if (OpenTokenSource(out_, {.verification = Verification::kSizes}).ok()) {
      ++harmless;
      EXPECT_TRUE(std::isspace(static_cast<unsigned char>(damaged[bit / 8]))) << bit;
    }
  }
  EXPECT_LT(harmless, static_cast<int>(good.size()) / 10);
}

TEST_F(PackedCorpus, RefusesAManifestThatWasCutOrLeadsElsewhere) {
  const std::string good = ReadBytes(Path(0));
  for (std::size_t length = 0; length + 3 < good.size(); length += 7) {
    WriteBytes(Path(0), good.substr(0, length));
    EXPECT_THAT(OpenTokenSource(out_), StatusIs(StatusCode::kDataLoss, HasSubstr("manifest.json")));
  }
  WriteBytes(Path(0), good.substr(0, good.size() / 2));
  EXPECT_THAT(Pack({Write("b", "text")}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("unreadable")));
  EXPECT_OK(Pack({Write("b", "text")}, 1'000, ExistingCorpus::kReplace));
  EXPECT_EQ(Unpack(out_), std::string("text\0", 5));
}

TEST_F(PackTextTest, AFullDiskIsAnErrorAndLeavesWhatWasThere) {
  const std::string small = Write("small", Words(9'000));
  const std::string large = Write("large", Words(200'000));
  for (const char* mode : {"limit", "full"}) {
    const std::string out = directory_ / mode;
    std::filesystem::create_directory(out);
    auto peer =
        Process::Spawn({.program = AIT_PACK_PEER, .args = {mode, out, large, small, large, small}});
    const auto exit = peer.Wait();
    EXPECT_EQ(exit.code, 0);
    std::vector<std::string> lines;
    std::istringstream output(exit.output);
    for (std::string line; std::getline(output, line);) lines.push_back(line);
    ASSERT_THAT(lines, SizeIs(4)) << exit.output;
    EXPECT_THAT(lines[0], HasSubstr("RESOURCE_EXHAUSTED"));
    EXPECT_THAT(lines[0], AnyOf(HasSubstr("No space left"), HasSubstr("File too large")));
    EXPECT_THAT(lines[0], HasSubstr("| 0 files | -1 tokens"));
    EXPECT_THAT(lines[1], HasSubstr("OK | 2 files | 9001 tokens"));
    EXPECT_THAT(lines[2], HasSubstr("RESOURCE_EXHAUSTED"));
    EXPECT_THAT(lines[2], HasSubstr("| 2 files | 9001 tokens"));
    EXPECT_THAT(lines[3], HasSubstr("OK | 2 files | 9001 tokens"));
  }
}

// At whatever moment the process dies: the directory holds one of the two corpora or, before the
// first was complete, none; and every file that has the name of a shard is a whole one.
TEST_F(PackTextTest, AKilledProcessLeavesAWholeCorpusOrNone) {
  const std::string a = Write("a", Words(30'000));
  const std::string b = Write("b", Words(20'000, 2));
  for (int round = 0; round < 12; ++round) {
    auto peer = Process::Spawn({.program = AIT_PACK_PEER, .args = {"loop", out_, a, b}});
    const bool first_is_done = round % 3 != 0;
    if (first_is_done) peer.ReadUntil("packed");
    std::this_thread::sleep_for(std::chrono::milliseconds(1 + 5 * round));
    peer.Signal(SIGKILL);
    EXPECT_EQ(peer.Wait().code, 128 + SIGKILL);

    if (round == 0 && !std::filesystem::exists(out_ + "/manifest.json")) continue;
    const std::string text = Unpack(out_);
    EXPECT_TRUE(text == Words(30'000) + '\0' || text == Words(20'000, 2) + '\0') << text.size();
    for (const std::string& name : NamesIn(out_)) {
      if (!name.ends_with(".tokens")) continue;
      EXPECT_OK(OpenTokenSource(out_ + "/" + name));
    }
  }
  ASSERT_OK(Pack({a}, 2'000, ExistingCorpus::kReplace));
  EXPECT_THAT(NamesIn(out_), SizeIs(1 + 16)) << "what the dead left is cleaned up";
}

}  // namespace
}  // namespace ait
