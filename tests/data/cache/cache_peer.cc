// SPDX-License-Identifier: Apache-2.0
// A process that reads files through a cache, for tests that run several of them, kill them or take
// their disk away. cache_peer MODE ROOT LOG CACHE BUDGET DELAY NAME…
//   read       reads each file once and compares; says "read", then what the cache did
//   hold       as `read`, then keeps the objects open and sleeps
//   loop       reads ranges of the files at random for ever, compares, and says "going" once
//   full       mounts a small file system on CACHE, for this process alone, and fills it while it
//              reads all files three times; where that is forbidden says "skipped"
//   fail       as `full`, where a fault is an error
//   read-only  as `full`, but takes away the right to write
//   limit      as `full`, but forbids files of more than 8 KiB
//   stage      copies all files to the directory CACHE, by two threads
//   stage-full as `stage`, to the small file system of `full`
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "ait/data/cache/stage.h"
#include "data/cache/cache_test_support.h"
#include "data/data_test_support.h"

namespace ait {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kPart = 4096;

int Fail(const std::string& text) {
  std::printf("%s\n", text.c_str());
  return 1;
}

void Print(const CacheStatistics& all) {
  std::printf(
      "downloads %lld, waits %lld, pass %lld, hits %lld, stored %lld, faults %lld, damaged %lld | "
      "%s\n",
      static_cast<long long>(all.downloads), static_cast<long long>(all.waits),
      static_cast<long long>(all.pass_through_reads), static_cast<long long>(all.disk.hits),
      static_cast<long long>(all.disk.stored_parts), static_cast<long long>(all.disk.faults),
      static_cast<long long>(all.disk.verification_failures), all.disk.last_fault.c_str());
  std::fflush(stdout);
}

bool MountSmallDisk(const std::string& directory) {
  const uid_t user = ::getuid();
  if (::unshare(CLONE_NEWNS | (user == 0 ? 0 : CLONE_NEWUSER)) != 0) return false;
  if (user != 0) std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=256k") == 0;
}

struct Peer {
  std::string root;
  std::vector<std::string> names;
  std::shared_ptr<TieredCache> cache;

  int ReadAll() const {
    for (const std::string& name : names) {
      const std::string got = testing::ReadText(*cache, name);
      if (got != testing::ReadBytes(root + "/" + name)) {
        return Fail("wrong: " + name + ": " + got.substr(0, 200));
      }
    }
    return 0;
  }

  int Loop() const {
    std::vector<std::string> texts;
    for (const std::string& name : names) texts.push_back(testing::ReadBytes(root + "/" + name));
    std::mt19937_64 random(static_cast<unsigned>(::getpid()));
    for (long round = 0;; ++round) {
      const std::size_t which = random() % names.size();
      const auto object = cache->Open(names[which]);
      if (!object.ok()) return Fail(object.status().ToString());
      const auto size = static_cast<std::int64_t>(texts[which].size());
      const auto offset = static_cast<std::int64_t>(random() % size);
      const auto length = static_cast<std::int64_t>(random() % (size - offset + 1));
      const std::string got = testing::ReadText(**object, offset, length);
      if (got != texts[which].substr(offset, length)) return Fail("wrong: " + got.substr(0, 200));
      if (round == 10) {
        std::printf("going\n");
        std::fflush(stdout);
      }
    }
  }
};

int Main(int argc, char** argv) {
  if (argc < 8) return 2;
  const std::string_view mode = argv[1];
  const std::string directory = argv[4];
  const bool takes_disk =
      mode == "full" || mode == "fail" || mode == "read-only" || mode == "stage-full";
  if (takes_disk && !MountSmallDisk(directory)) return Fail("skipped");
  Peer peer = {.root = argv[2], .names = {argv + 7, argv + argc}};
  auto remote = std::make_shared<testing::FileStorage>(
      peer.root, argv[3], std::chrono::milliseconds(std::atoi(argv[6])));
  if (mode.starts_with("stage")) {
    const auto report =
        Stage(*remote, "", {.directory = directory, .threads = 2, .part_bytes = kPart});
    return report.ok() ? 0 : Fail(report.status().ToString());
  }
  auto cache = TieredCache::Create(
      remote, {.disk_bytes = std::atoll(argv[5]),
               .disk_directory = directory,
               .part_bytes = kPart,
               .entry_bytes = 4 * kPart,
               .fault = mode == "fail" ? CacheFault::kFail : CacheFault::kReadThrough,
               .wait = 20s,
               .lease = mode == "hold" ? 1h : 0ms,
               .use_interval = 0ms,
               .retry_after = 0ms});
  if (!cache.ok()) return Fail(cache.status().ToString());
  peer.cache = *cache;
  if (mode == "loop") return peer.Loop();
  if (mode == "limit") {
    ::signal(SIGXFSZ, SIG_IGN);  // then the write fails instead
    const rlimit limit = {8192, 8192};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  int code = peer.ReadAll();
  if (takes_disk || mode == "limit") {
    if (mode == "full" || mode == "fail") {
      std::ofstream(directory + "/filler") << std::string(1 << 20, 'x');
    }
    if (mode == "read-only" &&
        ::mount(nullptr, directory.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return Fail("skipped");
    }
    // Others than those that are cached.
    for (std::string& name : peer.names) name += ".2";
    for (int i = 0; i < 2 && code == 0; ++i) code = peer.ReadAll();
  }
  std::printf("read\n");
  Print(peer.cache->statistics());
  if (mode == "hold") std::this_thread::sleep_for(1h);
  return code;
}

}  // namespace
}  // namespace ait

int main(int argc, char** argv) { return ait::Main(argc, argv); }
