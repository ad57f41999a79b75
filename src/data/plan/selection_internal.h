// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_SELECTION_INTERNAL_H_
#define AIT_DATA_PLAN_SELECTION_INTERNAL_H_

// The samples of a source that take part, by ascending id.

#include <cstdint>
#include <memory>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/plan/plan_options.h"

namespace ait::inline v0 {
namespace internal {

class Selection {
 public:
  /// **Errors.** InvalidArgument: nothing is selected, or what is not there.
  static StatusOr<Selection> Create(const Subset& subset, std::int64_t count);

  std::int64_t size() const { return size_; }
  /// Id of the `index`-th selected sample, 0 ≤ index < size.
  std::int64_t operator()(std::int64_t index) const {
    return ids_ ? (*ids_)[static_cast<std::size_t>(index)] : first_ + index * stride_;
  }
  /// How many of the selected samples have an id below `id`.
  std::int64_t CountBelow(std::int64_t id) const;
  std::uint64_t digest() const { return digest_; }

 private:
  std::int64_t first_ = 0;
  std::int64_t stride_ = 1;
  std::int64_t size_ = 0;
  std::shared_ptr<const std::vector<std::int64_t>> ids_;
  std::uint64_t digest_ = 0;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_SELECTION_INTERNAL_H_
