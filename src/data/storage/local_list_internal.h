// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_LOCAL_LIST_INTERNAL_H_
#define AIT_DATA_STORAGE_LOCAL_LIST_INTERNAL_H_

// The files below a directory, in the order of the bytes of their URLs.

#include <functional>
#include <string>

#include "ait/base/status.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0::internal {

/// As Storage::List. One directory is in memory at a time, of each level.
Status ListFiles(const std::string& prefix, const std::function<Status(const ObjectInfo&)>& visit);

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_STORAGE_LOCAL_LIST_INTERNAL_H_
