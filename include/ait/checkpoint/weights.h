// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CHECKPOINT_WEIGHTS_H_
#define AIT_CHECKPOINT_WEIGHTS_H_

// The weights of a model to and from a safetensors file that Python reads, by name.
//
// Tied tensors (the same memory under several names) are written once, under the name that sorts
// first; the metadata maps the other names to it, as `save_model` of the reference library does.
// Loading is strict: what is missing, left over, or of another shape or dtype is an error that
// names it, and nothing is changed then.
//
//   AIT_RETURN_IF_ERROR(SaveWeights("run/weights.safetensors", NamedParameters(*model)));
//   AIT_RETURN_IF_ERROR(LoadWeights("run/weights.safetensors", NamedParameters(*model)).status());
//
// **Thread-safety.** The tensors are not used by anybody else during a call. These functions know
// of no ranks: `Trainer::Save` and `Trainer::Load` do.

#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/checkpoint/safetensors.h"
#include "ait/parallel/named_tensor.h"

namespace ait::inline v0 {

/// Writes all tensors, durably: after an error, a full disk or a kill the old file is as it was.
/// `metadata` is added to the file's; "format" is "pt" unless it says otherwise. Tensors on other
/// devices or with gaps in memory are copied first.
/// **Errors.** InvalidArgument: a tensor is undefined, sparse or of a dtype that files cannot hold;
/// the others of `WriteSafetensors`.
Status SaveWeights(const std::string& path, const NamedTensors& tensors,
                   SafetensorsMetadata metadata = {});

/// What becomes of names that only one side has.
enum class NamePolicy { kMustMatch, kMayDiffer };

struct LoadWeightsOptions {
  NamePolicy missing = NamePolicy::kMustMatch;     // in the model, not in the file
  NamePolicy unexpected = NamePolicy::kMustMatch;  // in the file, not in the model
};

/// The names that differed, in order; empty unless a policy allows it.
struct LoadedWeights {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
};

/// Ok if `LoadWeights` would find a file that fits; changes nothing.
/// **Errors.** As `LoadWeights`.
Status CheckWeights(const std::string& path, const NamedTensors& tensors,
                    LoadWeightsOptions options = {});

/// Copies the values of a file into the tensors of the same names; the tensors keep their memory.
/// Names that are missing are found through a tied name, of the file or of the model.
/// **Errors.** FailedPrecondition: names, shapes or dtypes differ, or the file has different values
/// under names that the model ties, all of them in one message; DataLoss: the file is damaged; by
/// errno. Values are changed only by a call that returns ok, or when the file is damaged while it
/// is read.
StatusOr<LoadedWeights> LoadWeights(const std::string& path, const NamedTensors& tensors,
                                    LoadWeightsOptions options = {});

}  // namespace ait::inline v0

#endif  // AIT_CHECKPOINT_WEIGHTS_H_
