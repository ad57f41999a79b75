// SPDX-License-Identifier: Apache-2.0
#include "comm/shm_fabric.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "ait/topology/budget.h"
#include "comm/shm_layout.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

ForkGuard::ForkGuard() {
  void* const page =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;  // then a fork goes unnoticed
  if (madvise(page, kPage, MADV_WIPEONFORK) != 0) {
    munmap(page, kPage);
    return;
  }
  page_ = static_cast<volatile char*>(page);
  *page_ = 1;
}

ForkGuard::~ForkGuard() {
  if (page_ != nullptr) munmap(const_cast<char*>(page_), kPage);
}

ShmFabric::ShmFabric(int rank, std::vector<ShmPeer> peers, std::shared_ptr<SharedArena> arena,
                     SharedMemoryOptions options)
    : rank_(rank),
      peers_(std::move(peers)),
      arena_(std::move(arena)),
      options_(std::move(options)) {}

StatusOr<std::vector<std::shared_ptr<ShmFabric>>> ShmFabric::OfThreads(
    WorldSize size, const SharedMemoryOptions& options) {
  AIT_RETURN_IF_ERROR(CheckSharedMemoryOptions(options));
  AIT_ASSIGN_OR_RETURN(const std::shared_ptr<SharedArena> arena,
                       CreateRankArena(options, size.value()));
  std::vector<std::shared_ptr<ShmFabric>> ranks;
  for (int rank = 0; rank < size.value(); ++rank) {
    std::vector<ShmPeer> peers(static_cast<std::size_t>(size.value()));
    for (ShmPeer& peer : peers) peer.pid = getpid();
    ranks.emplace_back(new ShmFabric(rank, std::move(peers), arena, options));
  }
  return ranks;
}

std::byte* ShmFabric::At(int rank, std::uint64_t offset, std::size_t bytes) const {
  const Bytes at(static_cast<std::int64_t>(offset));
  const std::optional<SharedArenaView>& view = peers_[static_cast<std::size_t>(rank)].view;
  const StatusOr<void*> address = view ? view->At(at, bytes) : arena_->At(at, bytes);
  return address.ok() ? static_cast<std::byte*>(*address) : nullptr;
}

std::uint64_t ShmFabric::OffsetOf(const void* data, std::size_t bytes) const {
  return arena_->Contains(data, bytes)
             ? static_cast<std::uint64_t>(static_cast<const std::byte*>(data) - arena_->data())
             : kForeign;
}

void ShmFabric::ForgetPeerPages() const {
  for (const ShmPeer& peer : peers_) {
    if (peer.view) peer.view->Forget();
  }
}

bool ShmFabric::IsDead(int rank) const {
  const FileDescriptor& life = peers_[static_cast<std::size_t>(rank)].life;
  if (!life.is_open()) return false;  // a thread of this process
  pollfd waiting = {.fd = life.get(), .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, 0) > 0 && waiting.revents != 0;
}

void ShmFabric::FreeLater(std::function<bool()> may_free) {
  const std::lock_guard lock(mutex_);
  if (may_free) graves_.push_back(std::move(may_free));
  std::erase_if(graves_, [](const std::function<bool()>& grave) { return grave(); });
}

Status CheckSharedMemoryOptions(const SharedMemoryOptions& options) {
  constexpr Bytes kStep = KiB(64);
  if (options.staging < kStep || options.staging > MiB(64) ||
      options.staging.value() % kStep.value() != 0) {
    return InvalidArgumentError("SharedMemoryOptions.staging is ", options.staging,
                                " bytes; it is a multiple of 65536 from 65536 to 67108864");
  }
  if (options.arena_capacity < Bytes(0)) {
    return InvalidArgumentError("SharedMemoryOptions.arena_capacity is ", options.arena_capacity,
                                " bytes; it is at least 0");
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<SharedArena>> CreateRankArena(const SharedMemoryOptions& options,
                                                       int size) {
  // Of 47 bits of address space, half is for the arenas of all ranks.
  const std::int64_t share = (std::int64_t{1} << 46) / size;
  std::int64_t capacity = options.arena_capacity.value();
  if (capacity == 0) {
    const long pages = sysconf(_SC_PHYS_PAGES);
    capacity = std::min(share, static_cast<std::int64_t>(pages) * static_cast<std::int64_t>(kPage));
    rlimit limit = {};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      const auto most = static_cast<std::int64_t>(
          std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(capacity)));
      capacity = std::min(capacity, most - static_cast<std::int64_t>(kPage));
    }
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      // Every rank maps the arenas of all; half of the address space stays for the rest.
      capacity = std::min(capacity, static_cast<std::int64_t>(limit.rlim_cur) / 2 / size);
    }
  }
  return SharedArena::Create({.capacity = Bytes(std::max<std::int64_t>(capacity, 1)),
                              .name = "ait-rank",
                              .reservation = ArenaReservation::kAtAllocation});
}

}  // namespace ait::inline v0::internal
