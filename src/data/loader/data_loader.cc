// SPDX-License-Identifier: Apache-2.0
#include "ait/data/loader/data_loader.h"

#include <algorithm>
#include <utility>

#include "ait/topology/binding.h"
#include "data/loader/loader_core_internal.h"

namespace ait::inline v0 {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kMostAutomaticThreads = 8;

Status Check(const LoaderOptions& options) {
  if (!options.shard.is_valid()) {
    return InvalidArgumentError("data loader: rank ", options.shard.rank.value(), " of ",
                                options.shard.size.value(), " is no part of a whole");
  }
  if (options.threads && (*options.threads < 0 || *options.threads > kMostThreads)) {
    return InvalidArgumentError("data loader: threads is ", *options.threads, ", allowed are 0 to ",
                                kMostThreads);
  }
  if (options.budget.value() < 1) {
    return InvalidArgumentError("data loader: budget is ", options.budget.value(),
                                " bytes; set it to 1 or more");
  }
  if (options.max_ahead < 1) {
    return InvalidArgumentError("data loader: max_ahead is ", options.max_ahead,
                                "; set it to 1 or more");
  }
  const BadSamplePolicy& policy = options.bad_samples;
  if (policy.max_bad_samples < 0 || policy.max_bad_per_shard < 0 || policy.max_bad_in_a_row < 0) {
    return InvalidArgumentError("data loader: a budget of bad samples is below 0");
  }
  return OkStatus();
}

// Sources in another order may have as many samples, and would be swapped without a word.
Status CheckSources(const BatchPlan& plan,
                    const std::vector<std::shared_ptr<const SampleSource>>& sources) {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto planned = plan.source_digest(static_cast<std::int32_t>(i));
    if (!planned || *planned == sources[i]->digest()) continue;
    return InvalidArgumentError("data loader: source ", i, ", ", sources[i]->name(),
                                ", has digest ", sources[i]->digest(), ", and source ", i,
                                " of the plan ", *planned,
                                "; give the sources that the plan was made of, in its order");
  }
  if (plan.source_digest(static_cast<std::int32_t>(sources.size()))) {
    return InvalidArgumentError("data loader: there are ", sources.size(),
                                " sources, the plan was made of more");
  }
  return OkStatus();
}

int AutomaticThreads(const LoaderOptions& options) {
  int cpus = options.cpus.size();
  if (cpus == 0) {
    const StatusOr<CpuSet> binding = ThisThreadBinding();
    cpus = binding.ok() ? binding->size() : 1;
  }
  return std::clamp(cpus, 1, kMostAutomaticThreads);
}

}  // namespace

class DataLoader::Impl final : public internal::LoaderCore {
 public:
  using LoaderCore::LoaderCore;
};

StatusOr<DataLoader> DataLoader::Create(std::shared_ptr<const BatchPlan> plan,
                                        std::vector<std::shared_ptr<const SampleSource>> sources,
                                        LoaderOptions options) {
  if (plan == nullptr) return InvalidArgumentError("data loader: no plan");
  // Transforms tell sources apart by 16 bits.
  if (sources.empty() || sources.size() > std::size_t{1} << 16) {
    return InvalidArgumentError("data loader: ", sources.size(),
                                " sources, allowed are 1 to 65536");
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i] == nullptr) return InvalidArgumentError("data loader: source ", i, " is null");
  }
  AIT_RETURN_IF_ERROR(Check(options));
  AIT_RETURN_IF_ERROR(CheckSources(*plan, sources));
  std::shared_ptr<DeviceRuntime> gpus;
  if (options.device_copy) gpus = options.device_copy->gpus;
  if (!options.memory) {
    if (gpus == nullptr) gpus = DeviceRuntime::Open();
    AIT_ASSIGN_OR_RETURN(options.memory, internal::DefaultBatchMemory(gpus));
  }
  const int threads = options.threads ? *options.threads : AutomaticThreads(options);
  auto impl = std::make_unique<Impl>(std::move(plan), std::move(sources), std::move(options),
                                     threads, std::move(gpus));
  AIT_RETURN_IF_ERROR(impl->Open());
  return DataLoader(std::move(impl));
}

DataLoader::DataLoader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DataLoader::DataLoader(DataLoader&&) noexcept = default;
DataLoader& DataLoader::operator=(DataLoader&& other) noexcept {
  DataLoader(std::move(other)).impl_.swap(impl_);
  return *this;
}
DataLoader::~DataLoader() {
  // A forked child has no threads to end; what they hold cannot be let go there.
  if (impl_ != nullptr && impl_->IsForked()) static_cast<void>(impl_.release());
}

const DataBatch* DataLoader::Next() { return impl_->Next(); }
const Status& DataLoader::status() const { return impl_->status(); }
DatasetState DataLoader::state() const { return impl_->state(); }
std::vector<DatasetState> DataLoader::delivered_ahead() const { return impl_->delivered_ahead(); }
Status DataLoader::Restore(const DatasetState& state,
                           std::span<const DatasetState> delivered_ahead) {
  return impl_->Restore(state, delivered_ahead);
}
void DataLoader::Cancel() { impl_->Cancel(); }
LoaderStatistics DataLoader::statistics() const { return impl_->statistics(); }
DataWait DataLoader::TakeWait() { return impl_->TakeWait(); }

}  // namespace ait::inline v0
