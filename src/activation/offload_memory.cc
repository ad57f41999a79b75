// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <utility>

#include "activation/offload_target_internal.h"

namespace ait::inline v0::internal {
namespace {

class MemoryTarget final : public OffloadTarget {
 public:
  explicit MemoryTarget(MemoryHandle memory) : memory_(std::move(memory)) {}

  StatusOr<OffloadPlace> Reserve(std::int64_t bytes) override {
    AIT_ASSIGN_OR_RETURN(void* const block, memory_.Allocate(static_cast<std::size_t>(bytes)));
    return OffloadPlace{.block = block, .bytes = bytes};
  }
  void Release(const OffloadPlace& place) override {
    memory_.Deallocate(place.block, static_cast<std::size_t>(place.bytes));
  }
  Status Write(const OffloadPlace& place, const void* from) override {
    std::memcpy(place.block, from, static_cast<std::size_t>(place.bytes));
    return OkStatus();
  }
  Status Read(const OffloadPlace& place, void* to) override {
    std::memcpy(to, place.block, static_cast<std::size_t>(place.bytes));
    return OkStatus();
  }
  std::string Describe() const override { return StrCat("blocks of ", memory_.properties().name); }

 private:
  const MemoryHandle memory_;
};

}  // namespace

std::unique_ptr<OffloadTarget> MakeMemoryTarget(MemoryHandle memory) {
  return std::make_unique<MemoryTarget>(std::move(memory));
}

}  // namespace ait::inline v0::internal
