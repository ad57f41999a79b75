// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_FILE_OBJECT_INTERNAL_H_
#define AIT_DATA_FORMAT_FILE_OBJECT_INTERNAL_H_

// A file that was just written, as an object to be read again.

#include <memory>
#include <string>
#include <utility>

#include "ait/data/storage/storage.h"
#include "data/input_file_internal.h"

namespace ait::inline v0 {
namespace internal {

inline StatusOr<std::shared_ptr<const StoredObject>> OpenFileObject(const std::string& path) {
  class FileObject final : public StoredObject {
   public:
    explicit FileObject(InputFile file)
        : file_(std::move(file)), info_{.url = file_.path(), .size_bytes = file_.size_bytes()} {}
    const ObjectInfo& info() const override { return info_; }
    Status ReadAt(std::int64_t offset_bytes, std::span<std::byte> out) const override {
      AIT_RETURN_IF_ERROR(CheckRange(info_, offset_bytes, static_cast<std::int64_t>(out.size())));
      return file_.ReadAt(offset_bytes, out);
    }

   private:
    InputFile file_;
    ObjectInfo info_;
  };
  AIT_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  return std::make_shared<FileObject>(std::move(file));
}

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_FILE_OBJECT_INTERNAL_H_
