// SPDX-License-Identifier: Apache-2.0
#include "parallel/unit_store_internal.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

namespace ait::inline v0::internal {
namespace {

// Frozen parameters of units have a layout of their own: one in which they are not frozen.
StatusOr<FlatLayout> LayoutOfFrozen(const FlatLayout& layout) {
  std::vector<ParameterInfo> infos = layout.parameters();
  for (ParameterInfo& info : infos) {
    const bool is_sharded = info.role == ParameterInfo::Role::kFrozen && info.unit >= 0;
    info.role = is_sharded ? ParameterInfo::Role::kTrainable : ParameterInfo::Role::kFrozen;
  }
  return FlatLayout::Create(std::move(infos), layout.options());
}

// Adds the buckets of units to `buckets`; gives for each bucket of the layout its number there.
std::vector<int> AddBuckets(const FlatLayout& layout, std::vector<ShardedBucket>& buckets) {
  std::vector<int> numbers;
  for (const FlatBucket& bucket : layout.buckets()) {
    numbers.push_back(bucket.unit < 0 ? -1 : static_cast<int>(buckets.size()));
    if (bucket.unit < 0) continue;
    buckets.push_back({.unit = bucket.unit,
                       .dtype = layout.groups()[static_cast<std::size_t>(bucket.group)].dtype,
                       .slice_counts = bucket.slice_counts});
  }
  return numbers;
}

std::string Away(const std::string& unit) {
  return StrCat("the parameters of unit ", unit,
                " are not gathered: ZeRO-3 keeps a slice of them on this rank; use them inside of "
                "DataParallel::Unit(\"",
                unit,
                "\", …), which also covers backward if its tensors are in what the function "
                "returns, or under DataParallel::GatherFull");
}

std::string Gone(const std::string& unit) {
  return StrCat("the parameters of unit ", unit,
                " are not there: the data-parallel engine that kept slices of them was destroyed; "
                "save them before, under GatherFull");
}

}  // namespace

StatusOr<std::unique_ptr<UnitStore>> UnitStore::Create(std::shared_ptr<Communicator> communicator,
                                                       const NamedTensors& tensors,
                                                       const FlatLayout& layout,
                                                       std::vector<std::string> units,
                                                       const Agree& agree,
                                                       UnitShardsOptions options) {
  auto store = std::unique_ptr<UnitStore>(new UnitStore);
  store->layout_ = &layout;
  store->prefetch_ = options.prefetch;
  store->uses_.resize(units.size());
  AIT_ASSIGN_OR_RETURN(const FlatLayout frozen, LayoutOfFrozen(layout));
  for (const FlatGroup& group : frozen.groups()) {
    for (const FlatSlot& slot : group.slots) {
      const FlatBucket& bucket = frozen.buckets()[static_cast<std::size_t>(slot.bucket)];
      const ElementRange range{slot.offset, slot.offset + slot.count};
      store->frozen_bytes_ += slot.count * SizeOf(group.dtype);
      store->own_frozen_bytes_ +=
          Intersection(range, bucket.slice(communicator->rank())).size() * SizeOf(group.dtype);
    }
  }
  std::vector<ShardedBucket> buckets;
  store->bucket_numbers_ = AddBuckets(layout, buckets);
  const std::vector<int> frozen_numbers = AddBuckets(frozen, buckets);
  AIT_ASSIGN_OR_RETURN(store->shards_, UnitShards::Create(std::move(communicator), std::move(units),
                                                          std::move(buckets), std::move(options)));
  for (int unit = 0; unit < static_cast<int>(store->uses_.size()); ++unit) {
    store->gone_.push_back(Gone(store->shards_->name(unit)));
    store->storages_.emplace_back(store->shards_->bytes(unit), Away(store->shards_->name(unit)));
  }
  store->AddMembers(layout, tensors, store->bucket_numbers_);
  store->AddMembers(frozen, tensors, frozen_numbers);
  for (int unit = 0; unit < store->unit_count(); ++unit) {
    AIT_RETURN_IF_ERROR(store->Move(unit, agree));
  }
  store->target_->store = store.get();
  return store;
}

void UnitStore::AddMembers(const FlatLayout& laid_out, const NamedTensors& tensors,
                           const std::vector<int>& numbers) {
  std::unordered_set<const void*> seen;
  for (std::size_t i = 0; i < laid_out.parameters().size(); ++i) {
    const FlatSlot* slot = laid_out.slot(static_cast<int>(i));
    if (slot == nullptr) continue;
    const FlatBucket& bucket = laid_out.buckets()[static_cast<std::size_t>(slot->bucket)];
    if (bucket.unit < 0 || !seen.insert(tensors.tensor(i).unsafeGetTensorImpl()).second) continue;
    const std::int64_t begin = shards_->begin(numbers[static_cast<std::size_t>(slot->bucket)]);
    members_.push_back(
        {.tensor = tensors.tensor(i),
         .parameter = static_cast<int>(i),
         .unit = bucket.unit,
         .offset = begin / SizeOf(laid_out.group_of(*slot).dtype) + slot->offset - bucket.begin});
  }
}

// The values of a unit: from the tensors over its block into the shards.
Status UnitStore::Move(int unit, const Agree& agree) {
  const c10::NoGradGuard no_grad;
  AIT_ASSIGN_OR_RETURN(std::byte* const block, shards_->Take(unit));
  const std::int64_t bytes = shards_->bytes(unit);
  if (bytes > 0) std::memset(block, 0, static_cast<std::size_t>(bytes));
  SwappedStorage& storage = storages_[static_cast<std::size_t>(unit)];
  storage.Set(block);
  for (Member& member : members_) {
    if (member.unit != unit) continue;
    const ParameterInfo& info = layout_->parameters()[static_cast<std::size_t>(member.parameter)];
    const at::Tensor view = storage.View(info.dtype, info.sizes, info.strides, member.offset);
    if (info.tied_to < 0) view.copy_(member.tensor);
    member.tensor.set_data(view);
  }
  if (agree != nullptr && bytes > 0) {
    AIT_RETURN_IF_ERROR(agree({block, bytes, DType::kUInt8},
                              StrCat("initial parameters of unit ", shards_->name(unit))));
  }
  shards_->Store(unit);
  storage.Clear();
  shards_->Drop(unit);
  return OkStatus();
}

UnitStore::~UnitStore() {
  target_->store = nullptr;
  for (std::size_t unit = 0; unit < storages_.size(); ++unit) {
    storages_[unit].Clear(std::move(gone_[unit]));
  }
}

int UnitStore::Find(std::string_view name) const {
  for (int unit = 0; unit < unit_count(); ++unit) {
    if (shards_->name(unit) == name) return unit;
  }
  return -1;
}

std::string UnitStore::Names() const {
  std::string names;
  for (int unit = 0; unit < unit_count(); ++unit) {
    names += StrCat(names.empty() ? "" : ", ", shards_->name(unit));
  }
  return names;
}

Buffer UnitStore::whole(int b) const {
  const FlatBucket& bucket = layout_->buckets()[static_cast<std::size_t>(b)];
  const int number = bucket_numbers_[static_cast<std::size_t>(b)];
  std::byte* const block = shards_->block(bucket.unit);
  return {block == nullptr ? nullptr : block + shards_->begin(number), bucket.count,
          layout_->groups()[static_cast<std::size_t>(bucket.group)].dtype};
}

Status UnitStore::Enter(int unit) {
  int& uses = uses_[static_cast<std::size_t>(unit)];
  if (uses > 0) {
    ++uses;
    return OkStatus();
  }
  if (in_micro_step_) schedule_.Use(unit);
  if (kept_ >= 0 && kept_ != unit) shards_->Drop(kept_);
  kept_ = -1;
  AIT_RETURN_IF_ERROR(shards_->Start(unit));
  ++uses;  // so that it is not dropped for others
  GatherAhead();
  const StatusOr<std::byte*> data = shards_->Finish(unit);
  if (!data.ok()) {
    --uses;
    shards_->Drop(unit);
    return data.status();
  }
  storages_[static_cast<std::size_t>(unit)].Set(*data);
  return OkStatus();
}

// Begins to gather what comes next, and drops what was gathered ahead in vain.
void UnitStore::GatherAhead() {
  const std::vector<int> ahead = in_micro_step_ ? schedule_.Ahead(prefetch_) : std::vector<int>();
  for (int unit = 0; unit < unit_count(); ++unit) {
    const bool is_wanted = in_use(unit) || std::ranges::find(ahead, unit) != ahead.end();
    if (!is_wanted && shards_->has_block(unit)) shards_->Drop(unit);
  }
  for (const int unit : ahead) {
    if (!shards_->Start(unit).ok()) return;  // who needs it will tell
  }
}

void UnitStore::Leave(int unit) noexcept {
  int& uses = uses_[static_cast<std::size_t>(unit)];
  if (uses == 0) return;  // Release came first
  if (--uses > 0) return;
  storages_[static_cast<std::size_t>(unit)].Clear();
  const int next = in_micro_step_ ? schedule_.next() : -1;
  if (next >= 0 && next != unit) return shards_->Drop(unit);
  if (kept_ >= 0) shards_->Drop(kept_);
  kept_ = unit;
}

void UnitStore::BeginMicroStep() {
  surprises_ += schedule_.surprises();
  schedule_.Begin();
  in_micro_step_ = true;
}

std::int64_t UnitStore::TakeSurprises() {
  return std::exchange(surprises_, 0) + schedule_.TakeSurprises();
}

void UnitStore::Release() {
  in_micro_step_ = false;
  kept_ = -1;
  ++target_->epoch;
  for (int unit = 0; unit < unit_count(); ++unit) {
    uses_[static_cast<std::size_t>(unit)] = 0;
    storages_[static_cast<std::size_t>(unit)].Clear();
    shards_->Drop(unit);
  }
}

Status UnitStore::Settle() {
  Release();
  return shards_->CheckOrder();
}

void UnitStore::BumpVersions() {
  for (const Member& member : members_) member.tensor.unsafeGetTensorImpl()->bump_version();
}

Status UnitStore::CheckUnchanged() const {
  for (const Member& member : members_) {
    const ParameterInfo& info = layout_->parameters()[static_cast<std::size_t>(member.parameter)];
    const at::Tensor& tensor = member.tensor;
    const bool is_frozen = info.role == ParameterInfo::Role::kFrozen;
    if (tensor.requires_grad() == is_frozen) {
      return FailedPreconditionError("parameter ", info.name, " was ",
                                     is_frozen ? "frozen when the engine was made and is not now"
                                               : "frozen after the engine was made",
                                     "; make a new engine");
    }
    if (storages_[static_cast<std::size_t>(member.unit)].Holds(tensor) &&
        tensor.storage_offset() == member.offset && tensor.sizes() == info.sizes &&
        tensor.strides() == info.strides) {
      continue;
    }
    return FailedPreconditionError(
        "parameter ", info.name, " of unit ", shards_->name(member.unit),
        " was moved, converted or reshaped after the engine was made (Module::to does that); "
        "change values in place under GatherFull, or make a new engine");
  }
  return OkStatus();
}

}  // namespace ait::inline v0::internal
