// SPDX-License-Identifier: Apache-2.0
#include "data.h"

#include <utility>

#include "ait/data/format/formats.h"
#include "ait/data/plan/plan_agreement.h"
#include "ait/data/storage/open_storage.h"
#include "cnn.h"

ait::StatusOr<Data> OpenData(ait::World& world, const std::string& url, const std::string& cache,
                             std::int64_t threads, const std::optional<ait::DatasetState>& begin) {
  // Endpoint, region and keys come from the environment or the profile, as for other programs.
  AIT_ASSIGN_OR_RETURN(auto remote, ait::OpenStorage(url));
  AIT_ASSIGN_OR_RETURN(
      const std::shared_ptr<const ait::TieredCache> cached,
      ait::TieredCache::Create(std::move(remote), {.disk_bytes = std::int64_t{1} << 30,
                                                   .disk_directory = cache,
                                                   .entry_bytes = std::int64_t{64} << 20}));
  AIT_ASSIGN_OR_RETURN(const auto samples, ait::OpenSamples(cached, url));
  AIT_ASSIGN_OR_RETURN(ait::DataPlan made,
                       ait::DataPlan::Create({ait::MakePlanSource(*samples)},
                                             {.global_batch_size = 128,
                                              .seed = 1,
                                              .order = ait::SampleOrder::kBlockShuffled,
                                              .epochs = ait::kUnlimitedEpochs}));
  const auto plan = std::make_shared<const ait::DataPlan>(std::move(made));
  const ait::DatasetState from = begin.value_or(plan->start());
  AIT_RETURN_IF_ERROR(ait::AgreeOnPlan(*world.communicator(), *plan, world.shard(), from));
  const auto cache_counts = [cached] {
    const ait::CacheStatistics now = cached->statistics();
    return ait::CacheCounts{.hits = now.disk.hits, .misses = now.downloads};
  };
  AIT_ASSIGN_OR_RETURN(
      ait::DataLoader loader,
      ait::DataLoader::Create(plan, {samples},
                              {.shard = world.shard(),
                               .seed = 1,
                               .transform = Decode(Use::kTraining),
                               .collate = ait::Stack({.required = {"image", "label"}}),
                               .threads = static_cast<int>(threads),
                               .cache_counts = cache_counts}));
  AIT_RETURN_IF_ERROR(loader.Restore(from));
  return Data{cached, plan, std::move(loader)};
}
