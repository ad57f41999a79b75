// SPDX-License-Identifier: Apache-2.0
#include "data/storage/local_choice_internal.h"

#include <algorithm>
#include <cstdio>
#include <limits>

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::int64_t kSmallFile = std::int64_t{4} << 20;  // read before a ring is set up
constexpr std::int64_t kLargeRead = 64 << 10;        // a look at the file costs nothing beside it
constexpr std::chrono::seconds kNetworkInterval{3};  // attributes are that old anyway
// The reads that are timed find their pages in the processor's caches. Others pay for the page table as
// well if they go by a mapping: what saves less than the cost of calls is no gain.
constexpr double kMappedMustWinBy = 1.5;
constexpr double kMappedMustBeCached = 0.9;
constexpr int kDepthToExplain = 8;

std::string Percent(double part) {
  return part < 0 ? "an unknown part" : StrCat(static_cast<int>(part * 100 + 0.5), " %");
}

std::string Size(std::int64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

}  // namespace

void ChooseForStreams(const LocalStorageOptions& options, const FileSystem& file_system,
                      StreamShape shape, EngineChoice& choice) {
  const auto choose = [&](LocalEngine engine, std::string reason) {
    choice.streams = engine;
    choice.streams_reason = std::move(reason);
  };
  const auto refusal = [&]() -> std::string {
    if (choice.direct_alignment == 0) {
      return StrCat("O_DIRECT is not possible on ", choice.file_system);
    }
    return choice.uring_refusal.empty() ? "" : StrCat("io_uring is not: ", choice.uring_refusal);
  };
  if (options.engine == LocalEngine::kUring) {
    const std::string why_not = refusal();
    if (why_not.empty()) return choose(LocalEngine::kUring, "asked for");
    return choose(LocalEngine::kPread, StrCat("io_uring was asked for, but ", why_not));
  }
  if (options.engine == LocalEngine::kNetwork) return choose(LocalEngine::kNetwork, "asked for");
  if (options.engine != LocalEngine::kAutomatic) return choose(LocalEngine::kPread, "asked for");
  if (file_system.is_network) {
    return choose(LocalEngine::kNetwork, StrCat(choice.file_system, " is behind a server"));
  }
  if (file_system.is_memory) {
    return choose(LocalEngine::kPread, StrCat(choice.file_system, " is memory"));
  }
  if (shape.depth == 0) {
    return choose(LocalEngine::kPread, "no block ahead was asked for, so the kernel reads ahead");
  }
  if (shape.length_bytes < kSmallFile) {
    return choose(LocalEngine::kPread,
                  StrCat(Size(shape.length_bytes), " are less than ", Size(kSmallFile)));
  }
  if (choice.cached < 0 || choice.cached >= 0.5) {
    return choose(LocalEngine::kPread, StrCat(Percent(choice.cached), " of it is in memory"));
  }
  if (options.data_bytes > 0 && options.data_bytes <= choice.memory_bytes / 2) {
    return choose(LocalEngine::kPread,
                  StrCat("all data, ", Size(options.data_bytes), ", fits into the ",
                         Size(choice.memory_bytes), " of memory, so it is read from a disk once"));
  }
  if (std::string why_not = refusal(); !why_not.empty()) {
    return choose(LocalEngine::kPread, std::move(why_not));
  }
  choose(LocalEngine::kUring,
         StrCat(Percent(choice.cached), " of ", Size(choice.size_bytes), " is in memory"));
}

void ChooseForReads(const LocalStorageOptions& options, const FileSystem& file_system,
                    EngineChoice& choice) {
  const auto choose = [&](LocalEngine engine, std::string reason) {
    choice.reads = engine;
    choice.reads_reason = std::move(reason);
  };
  switch (options.engine) {
    case LocalEngine::kMapped:
    case LocalEngine::kNetwork:
      return choose(options.engine, "asked for");
    case LocalEngine::kPread:
    case LocalEngine::kUring:
      return choose(LocalEngine::kPread, "asked for");
    case LocalEngine::kAutomatic:
      break;
  }
  if (file_system.is_network) {
    return choose(LocalEngine::kNetwork, StrCat(choice.file_system, " is behind a server"));
  }
  const double pread = choice.pread_seconds;
  const double mapped = choice.mapped_seconds;
  if (pread == 0 || mapped == 0) return choose(LocalEngine::kPread, "not measured");
  const auto nanoseconds = [](double seconds) {
    return StrCat(static_cast<std::int64_t>(seconds * 1e9), " ns");
  };
  const bool maps = mapped * kMappedMustWinBy < pread;
  choose(maps ? LocalEngine::kMapped : LocalEngine::kPread,
         StrCat("a small read takes ", nanoseconds(pread), " by pread and ", nanoseconds(mapped),
                " by a mapping"));
}

LocalChooser::LocalChooser(const LocalStorageOptions& options)
    : options_(options),
      pool_(std::make_shared<ReadPool>(options.threads)),
      forks_(ForkSafeMutex::forks()) {}

std::shared_ptr<ReadPool> LocalChooser::pool() const {
  return forks_ == ForkSafeMutex::forks() ? pool_ : nullptr;
}

LocalChooser::Facts& LocalChooser::FactsOf(const LocalFile& file) {
  const auto [at, is_new] = facts_.try_emplace(file.device());
  if (is_new) at->second.file_system = FileSystemOf(file.fd());
  return at->second;
}

CheckPolicy LocalChooser::PolicyFor(const LocalFile& file) {
  const std::lock_guard lock(mutex_);
  const bool is_network =
      options_.engine == LocalEngine::kNetwork || FactsOf(file).file_system.is_network;
  CheckPolicy policy = {.interval = options_.check_interval, .large_bytes = kLargeRead};
  if (is_network && policy.interval.count() > 0) {
    policy.interval = std::max<std::chrono::nanoseconds>(policy.interval, kNetworkInterval);
    policy.large_bytes = std::numeric_limits<std::int64_t>::max();
  }
  return policy;
}

void LocalChooser::FindDirect(const LocalFile& file, Facts& facts) {
  if (facts.direct_alignment) return;
  facts.direct_alignment = DirectAlignment(file.fd());
  if (*facts.direct_alignment == 0) return;
  const Status probed = ProbeDirect(file, *facts.direct_alignment);
  if (!probed.ok()) facts.uring_refusal = Message(probed);
}

void LocalChooser::FindSmallReads(const LocalFile& file, Facts& facts) {
  if (facts.small_reads) return;
  const StatusOr<std::unique_ptr<MappedFile>> mapped = MappedFile::Open(file);
  if (!mapped.ok()) {
    facts.small_reads.emplace();
    return;
  }
  const SmallReadTimes times = MeasureSmallReads(file, **mapped);
  if (times.pread_seconds > 0) facts.small_reads = times;  // else a larger file may tell
}

EngineChoice LocalChooser::ForStream(const LocalFile& file, StreamRange range, int depth) {
  EngineChoice choice;
  choice.size_bytes = file.info().size_bytes;
  const StreamShape shape = {range.end - range.begin, depth};
  const std::lock_guard lock(mutex_);
  Facts& facts = FactsOf(file);
  choice.file_system = facts.file_system.name;
  const bool is_automatic = options_.engine == LocalEngine::kAutomatic;
  const bool may_be_direct = is_automatic && !facts.file_system.is_network && depth > 0 &&
                             !facts.file_system.is_memory && shape.length_bytes >= kSmallFile;
  if (may_be_direct) {
    choice.cached = CachedPart(file.fd(), range.begin, range.end);
    if (options_.data_bytes > 0) choice.memory_bytes = MemoryForCache();
  }
  if (options_.engine == LocalEngine::kUring ||
      (may_be_direct && choice.cached >= 0 && choice.cached < 0.5)) {
    FindDirect(file, facts);
    choice.direct_alignment = *facts.direct_alignment;
    choice.uring_refusal = facts.uring_refusal;
  }
  ChooseForStreams(options_, facts.file_system, shape, choice);
  const bool is_refused = !choice.uring_refusal.empty() ||
                          (options_.engine == LocalEngine::kUring && choice.direct_alignment == 0);
  if (is_refused) {
    Tell(facts, LocalEngine::kUring, Severity::kWarning,
         StrCat("files on ", choice.file_system, " such as ", file.path(),
                " are read by pread: ", choice.streams_reason));
  } else if (is_automatic) {
    Tell(facts, choice.streams, Severity::kInfo,
         StrCat("files on ", choice.file_system, " such as ", file.path(), " are streamed by ",
                Name(choice.streams), ": ", choice.streams_reason));
  }
  return choice;
}

bool LocalChooser::Maps(const LocalFile& file) {
  if (options_.engine == LocalEngine::kMapped) return true;
  if (options_.engine != LocalEngine::kAutomatic) return false;
  const std::lock_guard lock(mutex_);
  Facts& facts = FactsOf(file);
  if (facts.file_system.is_network) return false;
  FindSmallReads(file, facts);
  if (!facts.small_reads) return false;
  EngineChoice choice;
  choice.pread_seconds = facts.small_reads->pread_seconds;
  choice.mapped_seconds = facts.small_reads->mapped_seconds;
  ChooseForReads(options_, facts.file_system, choice);
  // What is not in memory comes one page at a time by a mapping, and together by pread.
  return choice.reads == LocalEngine::kMapped &&
         CachedPart(file.fd(), 0, file.info().size_bytes) >= kMappedMustBeCached;
}

std::unique_ptr<MappedFile> LocalChooser::Map(const LocalFile& file) {
  StatusOr<std::unique_ptr<MappedFile>> mapped = MappedFile::Open(file);
  if (mapped.ok()) return std::move(*mapped);
  if (file.info().size_bytes > 0) Warn(file, LocalEngine::kMapped, mapped.status());
  return nullptr;
}

EngineChoice LocalChooser::Explain(const LocalFile& file) {
  EngineChoice choice;
  choice.size_bytes = file.info().size_bytes;
  choice.cached = CachedPart(file.fd(), 0, choice.size_bytes);
  choice.memory_bytes = MemoryForCache();
  const std::lock_guard lock(mutex_);
  Facts& facts = FactsOf(file);
  choice.file_system = facts.file_system.name;
  if (!facts.file_system.is_network && options_.engine != LocalEngine::kNetwork) {
    FindDirect(file, facts);
    FindSmallReads(file, facts);
  }
  choice.direct_alignment = facts.direct_alignment.value_or(0);
  choice.uring_refusal = facts.uring_refusal;
  if (facts.small_reads) {
    choice.pread_seconds = facts.small_reads->pread_seconds;
    choice.mapped_seconds = facts.small_reads->mapped_seconds;
  }
  ChooseForStreams(options_, facts.file_system, {choice.size_bytes, kDepthToExplain}, choice);
  ChooseForReads(options_, facts.file_system, choice);
  return choice;
}

void LocalChooser::Warn(const LocalFile& file, LocalEngine engine, const Status& why) {
  const std::lock_guard lock(mutex_);
  Facts& facts = FactsOf(file);
  Tell(facts, engine, Severity::kWarning,
       StrCat("files on ", facts.file_system.name, " such as ", file.path(),
              " are read by pread, not by ", Name(engine), ": ", Message(why)));
}

void LocalChooser::Tell(Facts& facts, LocalEngine engine, Severity severity,
                        const std::string& text) {
  if (!facts.told.insert({engine, severity == Severity::kWarning}).second) return;
  Log(options_.log, severity, "data", text);
}

}  // namespace internal

std::string_view Name(LocalEngine engine) {
  switch (engine) {
    case LocalEngine::kAutomatic:
      return "automatic";
    case LocalEngine::kPread:
      return "pread";
    case LocalEngine::kUring:
      return "io_uring";
    case LocalEngine::kMapped:
      return "mapped";
    case LocalEngine::kNetwork:
      return "network";
  }
  return "unknown";
}

StatusOr<LocalEngine> LocalEngineFromName(std::string_view name) {
  using enum LocalEngine;
  for (const LocalEngine engine : {kAutomatic, kPread, kUring, kMapped, kNetwork}) {
    if (name == Name(engine)) return engine;
  }
  return InvalidArgumentError("there is no engine \"", name,
                              "\"; give automatic, pread, io_uring, mapped or network");
}

std::string ToString(const EngineChoice& choice) {
  std::string text = StrCat("streams by ", Name(choice.streams), ": ", choice.streams_reason,
                            "; many small reads by ", Name(choice.reads), ": ", choice.reads_reason,
                            "; ", choice.file_system, ", ", internal::Size(choice.size_bytes), ", ",
                            internal::Percent(choice.cached), " in memory");
  if (choice.memory_bytes > 0) {
    text += StrCat(", ", internal::Size(choice.memory_bytes), " of memory for more");
  }
  text += choice.direct_alignment > 0
              ? StrCat(", O_DIRECT in blocks of ", choice.direct_alignment, " bytes")
              : ", no O_DIRECT";
  if (!choice.uring_refusal.empty()) text += StrCat(", no io_uring: ", choice.uring_refusal);
  return text;
}

}  // namespace ait::inline v0
