// SPDX-License-Identifier: Apache-2.0
#include <c10/core/StorageImpl.h>

#include <utility>

#include "ait/tensor/dtype.h"
#include "parallel/swapped_storage_internal.h"

namespace ait::inline v0::internal {
namespace {

// libtorch has a switch that makes a storage throw when its data is touched, and no way to put it
// back (2.11). An explicit instantiation may name a private member ([temp.spec.general]).
void SetThrows(c10::StorageImpl& storage, bool throws);

template <bool c10::StorageImpl::* kSwitch>
struct StorageSwitch {
  friend void SetThrows(c10::StorageImpl& storage, bool throws) { storage.*kSwitch = throws; }
};
template struct StorageSwitch<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

c10::DataPtr Pointer(void* data) { return {data, c10::Device(c10::DeviceType::CPU)}; }

}  // namespace

SwappedStorage::SwappedStorage(std::int64_t bytes, std::string away)
    : storage_(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                     Pointer(nullptr), nullptr, false)) {
  Clear(std::move(away));
}

at::Tensor SwappedStorage::View(DType dtype, at::IntArrayRef sizes, at::IntArrayRef strides,
                                std::int64_t offset) const {
  // Tensor::set_ would look at the data.
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage_), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(ToTorch(dtype)));
  tensor.unsafeGetTensorImpl()->set_storage_offset(offset);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

void SwappedStorage::Set(void* data) {
  c10::StorageImpl& storage = *storage_.unsafeGetStorageImpl();
  SetThrows(storage, false);
  storage.set_data_ptr_noswap(Pointer(data));  // takes notice of the switch, too
}

void SwappedStorage::Clear() {
  c10::StorageImpl& storage = *storage_.unsafeGetStorageImpl();
  SetThrows(storage, true);
  storage.set_data_ptr_noswap(Pointer(nullptr));
}

void SwappedStorage::Clear(std::string away) {
  storage_.unsafeGetStorageImpl()->get_extra_meta().custom_data_ptr_error_msg_ = std::move(away);
  Clear();
}

bool SwappedStorage::Holds(const at::Tensor& tensor) const {
  return tensor.storage().unsafeGetStorageImpl() == storage_.unsafeGetStorageImpl();
}

}  // namespace ait::inline v0::internal
