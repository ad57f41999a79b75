// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_COMM_NCCL_RANKS_H_
#define AIT_TESTS_COMM_NCCL_RANKS_H_

// Ranks as threads over NCCL: the fake one (support/fake_gpu.h), or the real one with a GPU a rank.

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ait/comm/communicator.h"
#include "ait/comm/nccl.h"
#include "ait/comm/store.h"
#include "ait/device/buffer.h"
#include "ait/device/stream.h"

namespace ait::testing {

/// The communicator of one rank, its store and its GPU.
struct NcclRank {
  std::shared_ptr<Store> store;
  std::shared_ptr<DeviceRuntime> devices;
  Device device;
  std::shared_ptr<Communicator> communicator;
};

/// Runs `body` on a thread a rank; rank r has device r. `options` are those of all, but for the
/// device. Returns what the ranks say.
inline std::vector<Status> RunNcclRanks(int size, const NcclOptions& options,
                                        const CommunicatorOptions& communicator,
                                        const std::function<Status(NcclRank)>& body) {
  const std::shared_ptr<Store> store = MakeProcessStore();
  std::vector<Status> statuses(static_cast<std::size_t>(size));
  const auto run = [&](int rank) -> Status {
    NcclOptions own = options;
    own.device = rank;
    AIT_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                         JoinNccl(*store, "world", Rank(rank), WorldSize(size),
                                  Deadline::After(std::chrono::seconds(30)), own));
    return body({store, options.devices, Device(rank),
                 std::make_shared<Communicator>(std::move(transport), communicator)});
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { statuses[static_cast<std::size_t>(rank)] = run(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

/// A vector on the device.
template <typename T>
class OnDevice {
 public:
  static StatusOr<OnDevice> Create(const NcclRank& rank, const std::vector<T>& values) {
    const Bytes bytes(static_cast<std::int64_t>(values.size() * sizeof(T)));
    AIT_ASSIGN_OR_RETURN(Stream stream, Stream::Create(rank.devices, rank.device));
    AIT_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                         DeviceBuffer::Create(rank.devices, rank.device, bytes));
    AIT_RETURN_IF_ERROR(stream.Copy(buffer.data(), values.data(), bytes));
    AIT_RETURN_IF_ERROR(stream.Wait());
    return OnDevice(std::move(stream), std::move(buffer), values.size());
  }

  Buffer view() const { return {buffer_.data(), static_cast<std::int64_t>(count_), kDTypeOf<T>}; }
  StatusOr<std::vector<T>> Values() {
    std::vector<T> values(count_);
    AIT_RETURN_IF_ERROR(stream_.Copy(values.data(), buffer_.data(), buffer_.size()));
    AIT_RETURN_IF_ERROR(stream_.Wait());
    return values;
  }
  /// Error unless it holds exactly `expected`.
  Status Expect(const std::string& what, const std::vector<T>& expected) {
    AIT_ASSIGN_OR_RETURN(const std::vector<T> seen, Values());
    for (std::size_t i = 0; i < count_; ++i) {
      if (std::memcmp(&seen[i], &expected.at(i), sizeof(T)) == 0) continue;
      return InternalError(what, ": element ", i, " of ", count_, " is ",
                           static_cast<double>(static_cast<float>(seen[i])), " and not ",
                           static_cast<double>(static_cast<float>(expected[i])));
    }
    return OkStatus();
  }

 private:
  OnDevice(Stream stream, DeviceBuffer buffer, std::size_t count)
      : stream_(std::move(stream)), buffer_(std::move(buffer)), count_(count) {}

  Stream stream_;
  DeviceBuffer buffer_;
  std::size_t count_;
};

}  // namespace ait::testing

#endif  // AIT_TESTS_COMM_NCCL_RANKS_H_
