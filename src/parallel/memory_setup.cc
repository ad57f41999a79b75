// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/memory_setup.h"

#include <utility>

#include "ait/parallel/data_parallel.h"
#include "parallel/layout_of_internal.h"
#include "parallel/parameter_store_internal.h"

namespace ait::inline v0 {

StatusOr<FlatLayout> internal::LayoutOf(const NamedTensors& parameters,
                                        const DataParallelOptions& options, WorldSize ranks) {
  AIT_ASSIGN_OR_RETURN(std::vector<ParameterInfo> infos, InspectParameters(parameters));
  for (ParameterInfo& info : infos) {
    if (info.dtype == DType::kFloat32) info.dtype = options.precision.parameters;
  }
  if (options.zero_stage == ZeroStage::kParameters) {
    AIT_RETURN_IF_ERROR(AssignUnits(options.units, options.whole_up_to, infos));
  }
  return FlatLayout::Create(std::move(infos), {.world_size = ranks,
                                               .slices = options.slices,
                                               .first_bucket = options.first_bucket,
                                               .bucket_cap = options.bucket_cap});
}

StatusOr<TrainingSetup> SetupOf(const NamedTensors& parameters, const DataParallelOptions& options,
                                WorldSize ranks) {
  AIT_RETURN_IF_ERROR(options.precision.Validate());
  AIT_ASSIGN_OR_RETURN(const FlatLayout layout, internal::LayoutOf(parameters, options, ranks));
  TrainingSetup setup{.parameters = CountsOf(layout, options.prefetch),
                      .bytes = BytesOf(options.precision),
                      .zero_stage = static_cast<int>(options.zero_stage),
                      .ranks = ranks.value(),
                      .prefetch = options.prefetch,
                      .bucket_cap = options.bucket_cap,
                      .offload = options.offload};
  if (options.reduce) {
    setup.gradients =
        *options.reduce == ReduceWhen::kOnce ? KeptGradients::kAll : KeptGradients::kReduced;
  }
  return setup;
}

}  // namespace ait::inline v0
