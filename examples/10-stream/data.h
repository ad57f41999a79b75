// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_EXAMPLES_10_STREAM_DATA_H_
#define AIT_EXAMPLES_10_STREAM_DATA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ait/comm/world.h"
#include "ait/data/cache/tiered_cache.h"
#include "ait/data/loader/data_loader.h"
#include "ait/data/plan/data_plan.h"

struct Data {
  std::shared_ptr<const ait::TieredCache> cache;
  std::shared_ptr<const ait::DataPlan> plan;
  ait::DataLoader loader;
};

/// Images below `url`, such as s3://bucket/train/, by way of a cache in the directory `cache`,
/// which all ranks of a host share. From `begin` on; from the start if that is nothing.
/// **Collective.** Compares over the ranks what they are going to read.
ait::StatusOr<Data> OpenData(ait::World& world, const std::string& url, const std::string& cache,
                             std::int64_t threads, const std::optional<ait::DatasetState>& begin);

#endif  // AIT_EXAMPLES_10_STREAM_DATA_H_
