// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DATASET_STATE_H_
#define AIT_DATA_DATASET_STATE_H_

// Where a dataset stands: a few bytes that belong into every checkpoint.
//
// The state is the same on all ranks and does not depend on how many there are, on the batch size,
// or on what was read ahead: it counts what was delivered, on all ranks together.
//
//   std::string text = ToJson(data.state());
//   // {"delivered":1280,"epoch":0,"plan":"91f0…","version":1}
//   AIT_ASSIGN_OR_RETURN(DatasetState state, DatasetStateFromJson(text));
//   AIT_RETURN_IF_ERROR(data.Restore(state));

#include <cstdint>
#include <string>
#include <string_view>

#include "ait/base/status.h"

namespace ait::inline v0 {

struct DatasetState {
  std::uint64_t plan_digest = 0;  // of what is delivered in which order: sources, order, seed
  std::int64_t epoch = 0;         // ≥ 0
  std::int64_t delivered = 0;     // samples of this epoch that all ranks together have received

  bool operator==(const DatasetState&) const = default;
};

/// One line of JSON with sorted keys.
std::string ToJson(const DatasetState& state);

/// **Errors.** InvalidArgument: not such a line, a field missing, unknown or out of range.
StatusOr<DatasetState> DatasetStateFromJson(std::string_view text);

}  // namespace ait::inline v0

#endif  // AIT_DATA_DATASET_STATE_H_
