// SPDX-License-Identifier: Apache-2.0
// What an engine does with units, whose parameters are whole only while they are in use.
#include <utility>

#include "ait/parallel/whole_parameters.h"
#include "parallel/data_parallel_impl.h"
#include "tensor/catch.h"

namespace ait::inline v0 {

struct WholeParameters::State {
  std::shared_ptr<internal::UnitTarget> units;  // null: nothing was gathered
  std::shared_ptr<DataParallel::Impl*> engine;  // null inside: it has gone
  std::int64_t epoch = 0;

  ~State() {
    if (units == nullptr || units->store == nullptr || units->epoch != epoch) return;
    for (int unit = 0; unit < units->store->unit_count(); ++unit) units->store->Leave(unit);
  }
};

WholeParameters::WholeParameters(std::unique_ptr<State> state) : state_(std::move(state)) {}
WholeParameters::WholeParameters(WholeParameters&&) noexcept = default;
WholeParameters& WholeParameters::operator=(WholeParameters&&) noexcept = default;
WholeParameters::~WholeParameters() = default;

// Moves the parameters of units into shards.
Status DataParallel::Impl::MakeUnits(const MemoryHandle& memory) {
  if (options.zero_stage != ZeroStage::kParameters) return OkStatus();
  std::vector<std::string> names;
  for (const ParameterUnit& unit : options.units) names.push_back(unit.name);
  internal::UnitStore::Agree agree;
  if (options.initial_sync == InitialSync::kBroadcast && communicator->size().value() > 1) {
    agree = [this](const Buffer& bytes, std::string label) {
      return communicator->Broadcast(bytes, Rank(0), Labelled(std::move(label))).Wait();
    };
  }
  AIT_ASSIGN_OR_RETURN(
      units_, internal::UnitStore::Create(
                  shard_, store_->named(), layout, std::move(names), agree,
                  {.memory = memory, .prefetch = options.prefetch, .operation = Labelled("")}));
  is_reached_by_peers_ = units_->shards().is_direct() && shard_->size().value() > 1;
  return is_reached_by_peers_ ? Meet("after the units were sharded") : OkStatus();
}

StatusOr<int> DataParallel::Impl::FindUnit(std::string_view name) const {
  AIT_RETURN_IF_ERROR(Usable("Unit"));
  if (units_ == nullptr) return -1;
  const int unit = units_->Find(name);
  if (unit >= 0) return unit;
  return InvalidArgumentError("Unit: there is no unit ", name, "; DataParallelOptions::units has ",
                              units_->Names());
}

Status DataParallel::Impl::EnterUnit(int unit) {
  if (state_ == State::kDecided) {
    return FailedPreconditionError("unit ", units_->shards().name(unit),
                                   ": parameters are about to change; call it before "
                                   "FinishGradients, or after Update or Discard");
  }
  const Status entered = units_->Enter(unit);
  return entered.ok() ? OkStatus() : End(entered, "gathering a unit");
}

Status DataParallel::Impl::CheckUnchanged() const {
  AIT_RETURN_IF_ERROR(store_->CheckUnchanged());
  return units_ == nullptr ? OkStatus() : units_->CheckUnchanged();
}

void DataParallel::Impl::BumpVersions() {
  store_->BumpVersions();
  if (units_ != nullptr) units_->BumpVersions();
}

void DataParallel::Impl::ReportUnits() {
  if (units_ == nullptr) return;
  const internal::GatherCounters gathered = units_->shards().TakeCounters();
  counters.gathers += gathered.gathers;
  counters.gathered_bytes += gathered.bytes;
  counters.gather_exposed += gathered.exposed;
  counters.gather_surprises += units_->TakeSurprises();
}

// The slices of frozen parameters are in the shards, too.
void DataParallel::Impl::AddUnits(MemoryReport& report, std::int64_t& real) const {
  if (units_ == nullptr) return;
  const internal::UnitShards& shards = units_->shards();
  report.measured.parameters += shards.shard_bytes();
  report.measured.gathered = shards.block_bytes();
  report.peak_gathered = shards.peak_block_bytes();
  const std::int64_t frozen = units_->frozen_bytes();
  report.formula.parameters += frozen / shard_->size().value();
  real += units_->own_frozen_bytes();
}

// This rank's part of the parameters of bucket b.
Buffer DataParallel::Impl::OwnParameters(int b) const {
  if (bucket(b).unit >= 0 && units_ != nullptr) return units_->shard(b);
  return store_->Elements(b, Owned(bucket(b)));
}

StatusOr<WholeParameters> DataParallel::Impl::GatherFull() {
  AIT_RETURN_IF_ERROR(Usable("GatherFull"));
  // While micro-steps accumulate, parameters are what they were: a run may end there, and save.
  if (state_ != State::kReady && state_ != State::kAccumulating) {
    AIT_RETURN_IF_ERROR(BetweenSteps("GatherFull"));
  }
  auto state = std::make_unique<WholeParameters::State>();
  state->engine = self_;
  if (units_ == nullptr) return WholeParameters(std::move(state));
  for (int unit = 0; unit < units_->unit_count(); ++unit) {
    const Status entered = units_->Enter(unit);
    if (entered.ok()) continue;
    while (unit > 0) units_->Leave(--unit);
    return End(entered, "gathering all units");
  }
  state->units = units_->target();
  state->epoch = state->units->epoch;
  return WholeParameters(std::move(state));
}

Status WholeParameters::Keep() {
  if (state_ == nullptr || state_->engine == nullptr || *state_->engine == nullptr) {
    return FailedPreconditionError("Keep: the data-parallel engine has gone");
  }
  DataParallel::Impl& engine = **state_->engine;
  AIT_RETURN_IF_ERROR(engine.BetweenSteps("Keep"));
  if (state_->units != nullptr && state_->units->epoch != state_->epoch) {
    return FailedPreconditionError(
        "Keep: the parameters of units are not whole any more, a step has released them; call "
        "GatherFull again");
  }
  const Status kept = internal::CatchAsStatus([&] { return engine.KeepWhole(); });
  return kept.ok() || !engine.ended.ok() ? kept : engine.End(kept, "taking over parameters");
}

Status DataParallel::Impl::KeepWhole() {
  AIT_RETURN_IF_ERROR(Meet("before the parameters change"));  // nobody gathers
  if (units_ != nullptr) {
    for (int unit = 0; unit < units_->unit_count(); ++unit) units_->Store(unit);
  }
  if (!optimizers.empty()) AIT_RETURN_IF_ERROR(KeepMasters());
  return Meet("after the parameters have changed");
}

// The parameters as they are become the masters.
Status DataParallel::Impl::KeepMasters() {
  for (int b = 0; b < bucket_count(); ++b) {
    const auto g = static_cast<std::size_t>(bucket(b).group);
    const auto [begin, end] = Owned(bucket(b));
    if (layout.groups()[g].dtype == DType::kFloat32 || begin == end) continue;
    const Buffer own = OwnParameters(b);
    AIT_RETURN_IF_ERROR(optimizers[g]->SetParameters({.begin = begin, .parameters = own},
                                                     internal::WidenedValues(own)));
  }
  return OkStatus();
}

}  // namespace ait::inline v0
