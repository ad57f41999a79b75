// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_STORAGE_SET_INTERNAL_H_
#define AIT_ACTIVATION_STORAGE_SET_INTERNAL_H_

// Storages by identity, not kept alive: those of tensors that stay in memory anyway.

#include <mutex>
#include <unordered_map>

#include "tensor/torch_internal.h"
// Keep the order.
#include <c10/core/Storage.h>

namespace ait::inline v0::internal {

/// **Thread-safety.** All calls may come from any thread.
class StorageSet {
 public:
  void Add(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const std::lock_guard lock(mutex_);
    // A weak reference holds on to the address, so that no other storage has it meanwhile.
    storages_.insert_or_assign(tensor.storage().unsafeGetStorageImpl(),
                               tensor.storage().getWeakStorageImpl());
  }
  bool Contains(const at::Tensor& tensor) const {
    if (!tensor.has_storage()) return false;
    const std::lock_guard lock(mutex_);
    return storages_.contains(tensor.storage().unsafeGetStorageImpl());
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_STORAGE_SET_INTERNAL_H_
