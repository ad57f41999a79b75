// SPDX-License-Identifier: Apache-2.0
// `ait pack files`, `ait convert` and `ait inspect` from outside; what they do is tested in
// tests/data/format.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class AitShards : public ::testing::Test {
 protected:
  // Samples of two files each, in two folders.
  std::string Folder(int samples, std::size_t bytes = 100) {
    const std::string folder = directory_ / "photos";
    for (const char* name : {"cat", "dog"})
      std::filesystem::create_directories(folder + "/" + name);
    for (int i = 0; i < samples; ++i) {
      const std::string stem = folder + (i % 2 == 0 ? "/cat/" : "/dog/") + std::to_string(1000 + i);
      std::ofstream(stem + ".jpg") << std::string(bytes, static_cast<char>('a' + i % 26));
      std::ofstream(stem + ".cls") << i % 2;
    }
    return folder;
  }
  static Exit Ait(std::vector<std::string> args) {
    return Process::Spawn({.program = AIT_PROGRAM, .args = std::move(args)}).Wait();
  }
  static std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  static void ExpectWrongUsage(std::vector<std::string> args, const char* reason) {
    const Exit exit = Ait(std::move(args));
    EXPECT_EQ(exit.code, 2);
    EXPECT_THAT(exit.output, HasSubstr(reason));
  }

  const TempDir directory_;
};

TEST_F(AitShards, PacksAFolderAndInspectsIt) {
  const std::string out = directory_ / "out";
  Exit exit = Ait({"pack", "files", Folder(30), "--out", out, "--shard-samples", "12"});
  ASSERT_EQ(exit.code, 0) << exit.output;
  EXPECT_THAT(exit.output, AllOf(HasSubstr("30 samples in 3 shards"), HasSubstr("read back")));
  exit = Ait({"inspect", out, "--json", directory_ / "report.json"});
  EXPECT_EQ(exit.code, 0) << exit.output;
  EXPECT_THAT(exit.output, AllOf(HasSubstr("30 in 3 blocks, all read"), HasSubstr("cls, jpg"),
                                 HasSubstr("key 'cat/1000'"), HasSubstr("none found")));
  const auto report = nlohmann::json::parse(Read(directory_ / "report.json"));
  EXPECT_EQ(report["samples"], 30);
  EXPECT_EQ(report["findings"], 0);
  EXPECT_EQ(report["first"].size(), 3u);
  EXPECT_EQ(report["fields"]["jpg"], 30);
}

TEST_F(AitShards, PackingAgainDoesNothingAndOtherShardsAreKept) {
  const std::string folder = Folder(10), out = directory_ / "out";
  ASSERT_EQ(Ait({"pack", "files", folder, "--out", out}).code, 0);
  Exit exit = Ait({"pack", "files", folder, "--out", out});
  EXPECT_EQ(exit.code, 0);
  EXPECT_THAT(exit.output, HasSubstr("1 of them by an earlier run"));
  std::ofstream(folder + "/cat/9999.jpg") << "new";
  exit = Ait({"pack", "files", folder, "--out", out});
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.output, HasSubstr("holds shards of other samples"));
  exit = Ait({"pack", "files", folder, "--out", out, "--force"});
  EXPECT_EQ(exit.code, 0) << exit.output;
  EXPECT_THAT(exit.output, HasSubstr("11 samples"));
}

TEST_F(AitShards, AFileOfTheUserIsNeverReplacedUnasked) {
  const std::string folder = Folder(4), out = directory_ / "out";
  std::filesystem::create_directories(out);
  std::ofstream(out + "/00000.tar") << "precious";
  Exit exit = Ait({"pack", "files", folder, "--out", out});
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.output, HasSubstr("such as 00000.tar"));
  EXPECT_EQ(Read(out + "/00000.tar"), "precious");
  EXPECT_EQ(Ait({"pack", "files", folder, "--out", out, "--force"}).code, 0);
  // The shards are a source now, which no run may write over or into.
  const std::string before = Read(out + "/00000.tar");
  for (const std::string& to : {out, out + "/below", folder + "/packed"}) {
    exit = Ait({"convert", to.starts_with(out) ? out : folder, "--out", to, "--force"});
    EXPECT_EQ(exit.code, 1) << to;
    EXPECT_THAT(exit.output, HasSubstr("lies in"));
  }
  exit = Ait({"convert", out + "/00000.tar", "--out", out, "--force"});
  EXPECT_EQ(exit.code, 1);
  EXPECT_EQ(Read(out + "/00000.tar"), before);
}

TEST_F(AitShards, AnyFolderOfFilesIsPackedAsFiles) {
  const std::string folder = directory_ / "texts", out = directory_ / "out";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/a.txt") << "one\ntwo\n";
  std::ofstream(folder + "/b.json") << "{}";
  const Exit exit = Ait({"pack", "files", folder, "--out", out});
  ASSERT_EQ(exit.code, 0) << exit.output;
  EXPECT_THAT(exit.output, HasSubstr("2 samples"));
  EXPECT_THAT(Ait({"inspect", out}).output, AllOf(HasSubstr("key 'a'"), HasSubstr("json (in 1")));
}

TEST_F(AitShards, TheRulesOfTheSourceCanBeSaid) {
  const std::string csv = directory_ / "a.csv";
  std::ofstream(csv) << "1,x\n2,y\n";
  EXPECT_THAT(Ait({"convert", csv, "--no-header", "--out", directory_ / "rows"}).output,
              HasSubstr("2 samples"));
  EXPECT_THAT(Ait({"convert", csv, "--out", directory_ / "row"}).output, HasSubstr("1 sample"));
  EXPECT_EQ(Ait({"convert", csv, "--max-record", "x", "--out", directory_ / "no"}).code, 2);
}

TEST_F(AitShards, GoodFilesAreInspectedBesideBrokenOnes) {
  const std::string out = directory_ / "out";
  ASSERT_EQ(Ait({"pack", "files", Folder(30), "--out", out, "--shard-samples", "10"}).code, 0);
  for (const char* name : {"/00000.tar", "/00002.tar"}) {
    std::filesystem::remove(out + name + ".aitidx");
    std::filesystem::resize_file(out + name, 3000);
  }
  Exit exit = Ait({"inspect", out, "--json", directory_ / "report.json"});
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.output, AllOf(HasSubstr("00000.tar"), HasSubstr("00002.tar"),
                                 HasSubstr("2 findings"), HasSubstr("webdataset")));
  const auto report = nlohmann::json::parse(Read(directory_ / "report.json"));
  EXPECT_EQ(report["samples"], 10);
  EXPECT_EQ(report["findings"], 2);
  exit = Ait({"inspect", out + "/00001.tar.aitidx"});
  EXPECT_EQ(exit.code, 0);
  EXPECT_THAT(exit.output, AllOf(HasSubstr("index of a shard"), HasSubstr("10 records")));
}

TEST_F(AitShards, KeysCannotSpeakToTheTerminal) {
  const std::string folder = directory_ / "evil";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/a\x1b[31m.jpg") << "x";
  const Exit exit = Ait({"inspect", folder});
  EXPECT_EQ(exit.output.find('\x1b'), std::string::npos) << exit.output;
  EXPECT_THAT(exit.output, HasSubstr("key 'a\\x1b[31m'"));
}

TEST_F(AitShards, ConvertsFromOneFormatToAnotherAndBack) {
  const std::string tars = directory_ / "tars", records = directory_ / "records",
                    back = directory_ / "back";
  ASSERT_EQ(Ait({"pack", "files", Folder(20), "--out", tars}).code, 0);
  Exit exit = Ait({"convert", tars, "--out", records, "--format", "tfrecord"});
  ASSERT_EQ(exit.code, 0) << exit.output;
  exit = Ait({"inspect", records + "/00000.tfrecord"});
  EXPECT_EQ(exit.code, 0) << exit.output;
  EXPECT_THAT(exit.output, AllOf(HasSubstr("tfrecord"), HasSubstr("20 in 1 block, all read")));
  exit = Ait({"inspect", records, "--examples"});
  EXPECT_THAT(exit.output, AllOf(HasSubstr("cls, jpg"), HasSubstr("key 'cat/1000'")));
  exit = Ait({"convert", records, "--examples", "--out", back});
  ASSERT_EQ(exit.code, 0) << exit.output;
  EXPECT_EQ(Read(back + "/00000.tar"), Read(tars + "/00000.tar"));
  exit = Ait({"convert", tars, "--out", directory_ / "mds", "--format", "mds"});
  ASSERT_EQ(exit.code, 0) << exit.output;
  exit = Ait({"inspect", directory_ / "mds"});
  EXPECT_EQ(exit.code, 0) << exit.output;
  EXPECT_THAT(exit.output, AllOf(HasSubstr("cls, jpg"), HasSubstr("20 in 1 block, all read")));
}

TEST_F(AitShards, DamageIsFoundAndNamed) {
  const std::string out = directory_ / "out";
  ASSERT_EQ(Ait({"pack", "files", Folder(10), "--out", out}).code, 0);
  const std::string shard = out + "/00000.tar";
  std::string bytes = Read(shard);
  bytes[600] ^= 1;  // within the first file
  std::ofstream(shard, std::ios::binary) << bytes;
  Exit exit = Ait({"inspect", out});
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.output, AllOf(HasSubstr("1 finding"), HasSubstr("00000.tar")));
  std::filesystem::resize_file(shard, 3000);
  exit = Ait({"inspect", shard});
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.output, HasSubstr("00000.tar"));
}

TEST_F(AitShards, AKilledRunGoesOnToTheSameShards) {
  const std::string folder = Folder(600, 20'000), whole = directory_ / "whole",
                    out = directory_ / "out";
  const auto args = [&](const std::string& to) {
    return std::vector<std::string>{"pack",         "files", folder,   "--out", to,
                                    "--shard-size", "256K",  "--jobs", "2"};
  };
  ASSERT_EQ(Ait(args(whole)).code, 0);
  for (int i = 0; i < 4; ++i) {
    Process run = Process::Spawn({.program = AIT_PROGRAM, .args = args(out)});
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + 40 * i));
    if (run.running()) run.Signal(SIGKILL);  // it may be done already
    run.Wait();
  }
  const Exit exit = Ait(args(out));
  ASSERT_EQ(exit.code, 0) << exit.output;
  int shards = 0;
  for (const auto& entry : std::filesystem::directory_iterator(whole)) {
    const std::string name = entry.path().filename().string();
    if (name.front() == '.') continue;
    EXPECT_EQ(Read(out + "/" + name), Read(entry.path().string())) << name;
    ++shards;
  }
  EXPECT_GT(shards, 20);
}

// A limit on the size of files stands for a full disk: the same error, from any write.
TEST_F(AitShards, AFullDiskIsAnErrorAndTheNextRunGoesOn) {
  const std::string folder = Folder(60, 5'000), whole = directory_ / "whole",
                    out = directory_ / "out";
  const auto args = [&](const std::string& to) {
    return std::vector<std::string>{"pack", "files", folder, "--out", to, "--shard-size", "128K"};
  };
  ASSERT_EQ(Ait(args(whole)).code, 0);
  std::vector<std::string> limited = {"-c", "trap '' XFSZ; ulimit -f 100; exec \"$0\" \"$@\"",
                                      AIT_PROGRAM};
  for (const std::string& word : args(out)) limited.push_back(word);
  const Exit full = Process::Spawn({.program = "/bin/sh", .args = limited}).Wait();
  EXPECT_EQ(full.code, 1);
  EXPECT_THAT(full.output, HasSubstr(".tar"));
  for (const auto& entry : std::filesystem::directory_iterator(out)) {
    EXPECT_NE(entry.path().extension(), ".tar") << "a part of a shard has its name";
  }
  const Exit exit = Ait(args(out));
  ASSERT_EQ(exit.code, 0) << exit.output;
  for (const auto& entry : std::filesystem::directory_iterator(whole)) {
    const std::string name = entry.path().filename().string();
    if (name.front() != '.') {
      EXPECT_EQ(Read(out + "/" + name), Read(entry.path().string())) << name;
    }
  }
}

TEST_F(AitShards, TenThingsThatCannotBe) {
  const std::string folder = Folder(2), out = directory_ / "out";
  ExpectWrongUsage({"pack", "files", "--out", out}, "nothing to read is named");
  ExpectWrongUsage({"pack", "files", folder, folder, "--out", out}, "one source is read");
  ExpectWrongUsage({"pack", "files", folder}, "no --out DIR");
  ExpectWrongUsage({"pack", "files", folder, "--out", out, "--jobs", "0"}, "--jobs");
  ExpectWrongUsage({"pack", "files", folder, "--out", out, "--shard-size", "x"}, "--shard-size");
  ExpectWrongUsage({"pack", "files", folder, "--out", out, "--no-such"}, "no-such");
  ExpectWrongUsage({"inspect"}, "one path or URL");
  ExpectWrongUsage({"inspect", folder, "--samples", "-1"}, "--samples");
  for (const auto& [args, reason] :
       {std::pair(std::vector<std::string>{"pack", "files", directory_ / "gone", "--out", out},
                  "gone"),
        std::pair(std::vector<std::string>{"convert", folder, "--out", out, "--format", "zip"},
                  "'zip' cannot be written"),
        std::pair(std::vector<std::string>{"convert", folder, "--out", out, "--shard-size", "1K"},
                  "shards of 1024 bytes"),
        std::pair(std::vector<std::string>{"convert", "ftp://host/x", "--out", out}, "ftp")}) {
    const Exit exit = Ait(args);
    EXPECT_EQ(exit.code, 1) << exit.output;
    EXPECT_THAT(exit.output, HasSubstr(reason));
  }
}

}  // namespace
}  // namespace ait::testing
