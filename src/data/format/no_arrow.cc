// SPDX-License-Identifier: Apache-2.0
// Where ait was built without Apache Arrow: its files are known by name, and refused with the
// reason.
#include <string_view>

#include "data/format/format_entry_internal.h"

namespace ait::inline v0::internal {
namespace {

std::string_view Text(std::span<const std::byte> head) {
  return {reinterpret_cast<const char*>(head.data()), head.size()};
}

int Match(std::string_view url, std::span<const std::byte> head) {
  if (Text(head).starts_with("PAR1") || Text(head).starts_with("ARROW1")) return 2;
  return url.ends_with(".parquet") || url.ends_with(".arrow") || url.ends_with(".feather") ? 1 : 0;
}

StatusOr<std::unique_ptr<ShardReader>> Refuse(std::shared_ptr<const StoredObject> object,
                                              const ShardOptions&,
                                              std::shared_ptr<const StoredObject>) {
  return UnimplementedError(object->info().url,
                            " is a table of Apache Arrow, and this ait was built without it; build "
                            "with AIT_ARROW_ROOT, or convert the file (docs/data-formats.md)");
}

}  // namespace

extern const ShardFormat kParquetFormat = {
    .name = "parquet",
    .summary = "Apache Parquet; not in this build",
    .match = Match,
    .open = Refuse,
};
extern const ShardFormat kArrowFormat = {
    .name = "arrow",
    .summary = "Arrow IPC; not in this build",
    .match = [](std::string_view, std::span<const std::byte>) { return 0; },
    .open = Refuse,
};

}  // namespace ait::inline v0::internal
