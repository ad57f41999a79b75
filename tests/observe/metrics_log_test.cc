// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/metrics_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(MetricsLog, OneLineOfJsonPerStepIsAppended) {
  const TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  for (int part = 0; part < 2; ++part) {
    ASSERT_OK_AND_ASSIGN(MetricsLog log, MetricsLog::Open(path));
    EXPECT_EQ(log.path(), path);
    EXPECT_OK(log.Append({.step = 2 * part + 1, .loss = 0.5}));
    EXPECT_OK(log.Append({.step = 2 * part + 2}));
  }
  EXPECT_EQ(Contents(path), ToJson({.step = 1, .loss = 0.5}) + "\n" + ToJson({.step = 2}) + "\n" +
                                ToJson({.step = 3, .loss = 0.5}) + "\n" + ToJson({.step = 4}) +
                                "\n");
  ASSERT_OK_AND_ASSIGN(const auto steps, ReadMetricsLog(path));
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[2].step, 3);
  EXPECT_EQ(steps[2].loss, 0.5);
}

TEST(MetricsLog, ReaderSkipsATornLastLineAtEveryCut) {
  const TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  const std::string whole = ToJson({.step = 1}) + "\n" + ToJson({.step = 2}) + "\n";
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    Write(path, whole.substr(0, length));
    ASSERT_OK_AND_ASSIGN(const auto steps, ReadMetricsLog(path));
    const std::string cut = whole.substr(0, length);
    ASSERT_EQ(steps.size(), static_cast<std::size_t>(std::count(cut.begin(), cut.end(), '\n')));
  }
}

TEST(MetricsLog, OpenCutsTheTornLineOff) {
  const TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  const std::string whole = ToJson({.step = 1}) + "\n";
  // The torn part is shorter than, as long as, and longer than the block that is searched.
  for (const std::size_t torn : {0u, 1u, 50u, 4095u, 4096u, 4097u, 10000u}) {
    for (const std::string& before : {std::string(), whole}) {
      Write(path, before + std::string(torn, '{'));
      ASSERT_OK_AND_ASSIGN(MetricsLog log, MetricsLog::Open(path));
      ASSERT_EQ(Contents(path), before) << torn;
    }
  }
}

TEST(MetricsLog, ReaderSaysWhyItCannotRead) {
  const TempDir dir;
  EXPECT_THAT(ReadMetricsLog(dir / std::string(300, 'x')),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("too long")));
  // A directory can be opened, and then not be read.
  EXPECT_THAT(ReadMetricsLog(dir.path()),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("cannot read line 1"), HasSubstr("Is a directory"))));
}

TEST(MetricsLog, DamageInTheMiddleIsReportedWithItsLine) {
  const TempDir dir;
  Write(dir / "m", ToJson({.step = 1}) + "\n{\"step\":\n" + ToJson({.step = 3}) + "\n");
  EXPECT_THAT(ReadMetricsLog(dir / "m"), StatusIs(StatusCode::kDataLoss, HasSubstr("line 2 of")));
}

TEST(MetricsLog, MissingFilesAndFoldersAreNamed) {
  const TempDir dir;
  EXPECT_THAT(MetricsLog::Open(dir / "gone/metrics.jsonl"),
              StatusIs(StatusCode::kNotFound, HasSubstr("gone/metrics.jsonl")));
  EXPECT_THAT(ReadMetricsLog(dir / "gone"), StatusIs(StatusCode::kNotFound, HasSubstr("gone")));
}

TEST(MetricsLog, ASecondWriterIsRefused) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(MetricsLog first, MetricsLog::Open(dir / "m"));
  EXPECT_THAT(MetricsLog::Open(dir / "m"),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("another run")));
  MetricsLog moved = std::move(first);
  EXPECT_OK(moved.Append({.step = 1}));
}

TEST(MetricsLog, AFullDeviceIsAStatus) {
  ASSERT_OK_AND_ASSIGN(MetricsLog log, MetricsLog::Open("/dev/full"));
  EXPECT_THAT(log.Append({.step = 12}),
              StatusIs(StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("step 12"), HasSubstr("/dev/full"))));
}

TEST(MetricsLog, AShortWriteIsTakenBack) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(MetricsLog log, MetricsLog::Open(dir / "m"));
  ASSERT_OK(log.Append({.step = 1}));
  const std::string before = Contents(dir / "m");

  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = before.size() + 10, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = log.Append({.step = 2});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted, HasSubstr("are whole")));
  EXPECT_EQ(Contents(dir / "m"), before);
  EXPECT_OK(log.Append({.step = 2}));  // there is room again
  ASSERT_OK_AND_ASSIGN(const auto steps, ReadMetricsLog(dir / "m"));
  EXPECT_EQ(steps.size(), 2u);
}

TEST(MetricsLog, NothingIsWrittenBehindATornLineThatCannotBeCut) {
  // A file in memory that is sealed against shrinking.
  const int file = memfd_create("metrics", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_GE(file, 0);
  const std::string path = StrCat("/proc/self/fd/", file);
  ASSERT_OK_AND_ASSIGN(MetricsLog opened, MetricsLog::Open(path));
  ASSERT_OK(opened.Append({.step = 1}));
  ASSERT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const std::string whole = Contents(path);

  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = whole.size() + 10, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = opened.Append({.step = 2});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted, HasSubstr("last line is torn")));

  const std::string torn = Contents(path);
  ASSERT_EQ(torn.size(), whole.size() + 10);
  MetricsLog log = std::move(opened);
  for (int step = 3; step < 5; ++step) {
    const Status refused = log.Append({.step = step});
    EXPECT_FALSE(refused.ok());
    EXPECT_THAT(Message(refused), AllOf(HasSubstr(StrCat("cannot append step ", step)),
                                        HasSubstr("cannot cut the torn last line")));
    EXPECT_EQ(Contents(path), torn);
  }
  ASSERT_OK_AND_ASSIGN(const auto steps, ReadMetricsLog(path));
  EXPECT_EQ(steps.size(), 1u);
  close(file);
}

TEST(MetricsLog, AKilledWriterLeavesWholeLinesAndAtMostOneTorn) {
  const TempDir dir;
  const std::string path = dir / "metrics.jsonl";
  auto writer = testing::Process::Spawn({.program = AIT_TEST_WRITER, .args = {path}});
  writer.ReadUntil("hundred");
  writer.Signal(SIGKILL);
  writer.Wait();
  ASSERT_OK_AND_ASSIGN(const auto steps, ReadMetricsLog(path));
  ASSERT_GE(steps.size(), 100u);
  for (std::size_t i = 0; i < steps.size(); ++i)
    ASSERT_EQ(steps[i].step, static_cast<std::int64_t>(i) + 1);
  ASSERT_OK_AND_ASSIGN(MetricsLog log, MetricsLog::Open(path));
  EXPECT_OK(log.Append({.step = static_cast<std::int64_t>(steps.size()) + 1}));
  ASSERT_OK_AND_ASSIGN(const auto after, ReadMetricsLog(path));
  EXPECT_EQ(after.size(), steps.size() + 1);
}

}  // namespace
}  // namespace ait
