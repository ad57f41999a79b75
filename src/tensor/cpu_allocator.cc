// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/cpu_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <optional>
#include <string>

#include "tensor/block_table_internal.h"

namespace ait::inline v0 {

/// A resource in use by libtorch. Never destroyed, since an allocation may be looking at it while its
/// scope ends; the resource goes with the last user.
struct CpuAllocatorScope::Installed {
  MemoryHandle memory;
  std::atomic<std::int64_t> users{1};  // the scope, and each block

  /// False if there are none left.
  bool AddUser() {
    std::int64_t now = users.load(std::memory_order_relaxed);
    while (now != 0 && !users.compare_exchange_weak(now, now + 1, std::memory_order_acquire)) {
    }
    return now != 0;
  }
  void DropUser() {
    if (users.fetch_sub(1, std::memory_order_acq_rel) == 1) memory = MemoryHandle();
  }
};

/// libtorch's allocator for the CPU while a scope lives. It is one object for the process that is
/// never destroyed, because storages point to the allocator that they grow with. Once in place it stays,
/// and without a scope it passes on to libtorch's own: other threads may be between taking a block and
/// giving it back, and oneDNN gives it back to whichever allocator is in place then.
class HostAllocator final : public c10::Allocator {
 public:
  using Installed = CpuAllocatorScope::Installed;

  static HostAllocator& Get() {
    static auto* const allocator = new HostAllocator();
    return *allocator;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    void* const block = bytes == 0 ? nullptr : Allocate(bytes);
    return {block, block, &Delete, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  std::atomic<Installed*> current{nullptr};

 private:
  static void Delete(void* block) {
    if (block == nullptr) return;
    const auto entry = Get().table_.Remove(block);
    if (!entry.has_value()) {  // of libtorch's own
      c10::GetDefaultCPUAllocator()->raw_deleter()(block);
      return;
    }
    c10::profiledCPUMemoryReporter().Delete(block);
    entry->owner->memory.Deallocate(block, entry->bytes);
    entry->owner->DropUser();
  }

  void* Allocate(std::size_t bytes) {
    Installed* const installed = current.load(std::memory_order_acquire);
    if (installed == nullptr || !installed->AddUser()) {
      return c10::GetDefaultCPUAllocator()->raw_allocate(bytes);
    }
    const StatusOr<void*> block = installed->memory.Allocate(bytes);
    if (!block.ok()) {
      c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
      installed->DropUser();
      const std::string text =
          StrCat("libtorch asked for ", bytes, " bytes: ", Message(block.status()));
      TORCH_CHECK_WITH(OutOfMemoryError, block.status().code() != StatusCode::kResourceExhausted,
                       text);
      TORCH_CHECK_VALUE(false, text);
    }
    table_.Insert({*block, bytes, installed});
    c10::profiledCPUMemoryReporter().New(*block, bytes);
    return *block;
  }

  internal::BlockTable<Installed> table_;
};

StatusOr<CpuAllocatorScope> CpuAllocatorScope::Create(MemoryHandle memory) {
  if (!memory) {
    return InvalidArgumentError(
        "cannot allocate libtorch's CPU tensors from an empty handle; "
        "give a resource, such as PoolResource::Create()");
  }
  const MemoryProperties properties = memory.properties();
  if (properties.residence == Residence::kDevice) {
    return InvalidArgumentError("cannot allocate libtorch's CPU tensors from ", properties.name,
                                ": it is memory of a device");
  }
  HostAllocator& ours = HostAllocator::Get();
  const c10::Allocator* const now = c10::GetCPUAllocator();
  if (now != &ours && now != c10::GetDefaultCPUAllocator()) {
    return FailedPreconditionError(
        "cannot allocate libtorch's CPU tensors from ", properties.name,
        ": another library has put its own allocator in place (c10::SetCPUAllocator)");
  }
  const std::string& name = properties.name;
  auto* const installed = new Installed{.memory = std::move(memory)};
  Installed* none = nullptr;
  if (!ours.current.compare_exchange_strong(none, installed)) {
    delete installed;
    return FailedPreconditionError("cannot allocate libtorch's CPU tensors from ", properties.name,
                                   ": another CpuAllocatorScope lives, and libtorch has one "
                                   "allocator for the CPU; end that scope first");
  }
  if (now != &ours) c10::SetCPUAllocator(&ours);
  if (c10::GetCPUAllocator() != &ours) {
    ours.current.store(nullptr);
    installed->DropUser();
    return FailedPreconditionError(
        "cannot allocate libtorch's CPU tensors from ", name,
        ": another library has claimed the place with a higher priority (c10::SetCPUAllocator)");
  }
  return CpuAllocatorScope(installed);
}

CpuAllocatorScope::~CpuAllocatorScope() {
  if (installed_ == nullptr) return;
  HostAllocator::Get().current.store(nullptr);
  installed_->DropUser();
}

std::int64_t CpuAllocatorScope::live_count() const {
  return installed_ == nullptr ? 0 : installed_->users.load() - 1;
}

}  // namespace ait::inline v0
