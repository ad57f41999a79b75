// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_OPEN_STORAGE_H_
#define AIT_DATA_STORAGE_OPEN_STORAGE_H_

// From a URL to the storage that opens it.
//
//   AIT_ASSIGN_OR_RETURN(auto storage, OpenStorage("s3://corpus/train/", {}));
//   AIT_RETURN_IF_ERROR(storage->List("s3://corpus/train/", visit));
//
// A dataset whose shards lie in several places takes `AnyStorage`: it looks at each URL, and makes
// the storage of a scheme when the first URL of it comes, so that a run without S3 needs no keys.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ait/base/status.h"
#include "ait/data/storage/http_storage.h"
#include "ait/data/storage/local_storage.h"
#include "ait/data/storage/s3_storage.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {

struct StorageOptions {
  LocalStorageOptions local = {};  // plain paths and file://
  HttpStorageOptions http = {};    // http:// and https://
  S3StorageOptions s3 = {};        // s3://
};

/// The storage of the URL's scheme. **Errors.** InvalidArgument: a scheme that is none of the
/// above; those of the storage's `Create`.
StatusOr<std::shared_ptr<Storage>> OpenStorage(std::string_view url, const StorageOptions& options);
/// With the default options.
StatusOr<std::shared_ptr<Storage>> OpenStorage(std::string_view url);

/// A storage for URLs of all these schemes.
std::shared_ptr<Storage> AnyStorage(const StorageOptions& options);
std::shared_ptr<Storage> AnyStorage();

}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_OPEN_STORAGE_H_
