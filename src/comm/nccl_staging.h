// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NCCL_STAGING_H_
#define AIT_COMM_NCCL_STAGING_H_

// Memory on the device and, mirrored, on the host: for signatures and for buffers of the host.
//
// One arena serves a group and all that is made from it, taken when it joins: a later cudaMalloc or
// cudaFree could wait for a kernel of NCCL that waits for this very rank.

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "ait/base/status.h"
#include "ait/comm/operation.h"
#include "ait/device/buffer.h"
#include "ait/device/stream.h"
#include "comm/nccl_calls.h"
#include "memory/region_allocator_internal.h"

namespace ait::inline v0::internal {

/// **Thread-safety.** `Take` and the end of what it gave from any thread.
class NcclArena : public std::enable_shared_from_this<NcclArena> {
 public:
  static StatusOr<std::shared_ptr<NcclArena>> Create(const std::shared_ptr<DeviceRuntime>& devices,
                                                     Device device, Bytes host_staging);

  /// A piece of both memories; gives itself back.
  class Piece {
   public:
    Piece() = default;
    Piece(Piece&& other) noexcept { *this = std::move(other); }
    Piece& operator=(Piece&& other) noexcept;
    ~Piece();

    bool is_empty() const { return bytes_ == 0; }
    std::byte* on_device(std::int64_t offset = 0) const { return on_device_ + offset; }
    std::byte* on_host(std::int64_t offset = 0) const { return on_host_ + offset; }

   private:
    friend class NcclArena;
    std::shared_ptr<NcclArena> arena_;
    std::byte* on_device_ = nullptr;
    std::byte* on_host_ = nullptr;
    std::size_t offset_ = 0;
    std::size_t bytes_ = 0;
  };

  /// Nothing if there is no room now.
  std::optional<Piece> Take(std::int64_t bytes);

  /// Most that an operation may take.
  Bytes host_staging() const { return host_staging_; }

 private:
  NcclArena(DeviceBuffer on_device, DeviceBuffer on_host, Bytes host_staging);

  const DeviceBuffer on_device_;
  const DeviceBuffer on_host_;
  const Bytes host_staging_;
  std::mutex mutex_;
  RegionAllocator regions_;
};

/// One operation on buffers of the host on its way over the device.
class NcclStaged {
 public:
  /// Bytes that it takes of the arena.
  static std::int64_t Needs(const Operation& operation, int rank, int size);

  NcclStaged(NcclArena::Piece piece, const Operation& operation, int rank, int size);

  /// Copies the input to the device, runs the collective, and copies what it gave back to `piece`.
  /// Reads the input before it returns.
  Status Enqueue(const NcclComm& comm, Stream& stream, const KeepGoing& keep_going);
  /// Once the stream is past: reduces in rank order, if it is a reduction, and writes the output.
  void Finish();

 private:
  struct Layout {
    std::int64_t input = 0;   // bytes that go to the device
    std::int64_t output = 0;  // bytes that come back
  };
  static Layout LayoutOf(const Operation& operation, int rank, int size);

  const Operation operation_;
  const int rank_;
  const int size_;
  const Layout layout_;
  const std::int64_t output_at_;
  NcclArena::Piece piece_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_NCCL_STAGING_H_
