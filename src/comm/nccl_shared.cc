// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_shared.h"

#include <string>
#include <utility>

namespace ait::inline v0::internal {
namespace {

using Where = NcclPlaced::Where;

StatusOr<Where> LocateBuffer(const NcclShared& shared, const ConstBuffer& buffer) {
  if (buffer.count == 0 || buffer.data == nullptr) return Where::kNowhere;
  AIT_ASSIGN_OR_RETURN(const MemoryLocation location, shared.place.devices->Locate(buffer.data));
  if (location.place == MemoryPlace::kHost || location.place == MemoryPlace::kPinned) {
    return Where::kHost;
  }
  if (location.place == MemoryPlace::kDevice && location.device != shared.place.device) {
    return InvalidArgumentError("a buffer lies on device ", location.device,
                                ", and this rank uses device ", shared.place.device);
  }
  return Where::kDevice;
}

}  // namespace

StatusOr<NcclPlaced> PlaceOperation(const NcclShared& shared, const Operation& operation, int rank,
                                    int size) {
  AIT_ASSIGN_OR_RETURN(const Where input, LocateBuffer(shared, operation.input));
  AIT_ASSIGN_OR_RETURN(const Where output, LocateBuffer(shared, operation.output));
  NcclPlaced placed{.where = output == Where::kNowhere ? input : output};
  if (input != Where::kNowhere && input != placed.where) {
    return InvalidArgumentError("one buffer lies on the host and one on device ",
                                shared.place.device, "; put both on the device");
  }
  if (placed.where == Where::kHost) {
    const std::int64_t needed = NcclStaged::Needs(operation, rank, size);
    if (needed > shared.arena->host_staging().value()) {
      return InvalidArgumentError("buffers of the host need ", needed, " bytes on the device, and ",
                                  shared.arena->host_staging(),
                                  " are allowed; put the data on device ", shared.place.device,
                                  ", or raise NcclOptions::host_staging on all ranks");
    }
  }
  if (placed.where == Where::kDevice) {
    AIT_RETURN_IF_ERROR(CheckReduction(operation));
    const auto& [library, devices, device] = shared.place;
    AIT_ASSIGN_OR_RETURN(placed.produced, Event::Create(devices, device));
    void* const native = shared.producer_stream ? shared.producer_stream(device) : nullptr;
    AIT_RETURN_IF_ERROR(placed.produced->Record(Stream::Borrow(devices, device, native)));
  }
  return placed;
}

std::uint64_t SignatureOf(const Operation& operation, Where where) {
  const bool reduces = operation.kind == OperationKind::kAllReduce ||
                       operation.kind == OperationKind::kReduceScatter;
  return operation.Signature() ^ (reduces && where == Where::kHost ? 0x5bd1e9955bd1e995u : 0);
}

std::string DescribePlaced(const Operation& operation, Where where) {
  return StrCat(operation.Describe(), where == Where::kHost ? ", on the host" : "");
}

}  // namespace ait::inline v0::internal
