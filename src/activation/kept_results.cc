// SPDX-License-Identifier: Apache-2.0
#include "activation/kept_results_internal.h"

// Keep the order.
#include <ATen/core/List.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "ait/activation/keep.h"
#include "ait/base/throw_on_error.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

thread_local KeepContext* current = nullptr;

/// Runs the operation below the handler, which it does not meet again.
void RunBelow(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
              torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_handler(kKey);
  operation.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey),
                            stack);
}

/// Results that are new memory: not views, not what is written in place.
bool MakesResults(const c10::FunctionSchema& schema) {
  return !schema.returns().empty() &&
         std::ranges::none_of(schema.returns(),
                              [](const c10::Argument& r) { return r.alias_info() != nullptr; });
}

bool IsWritten(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool Writes(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), IsWritten);
}

/// Changes its first argument alone, and gives it back.
bool IsInPlace(const c10::FunctionSchema& schema) {
  return schema.returns().size() == 1 && !schema.arguments().empty() &&
         IsWritten(schema.arguments()[0]) &&
         std::ranges::count_if(schema.arguments(), IsWritten) == 1;
}

// clang-format off
/// They give the memory of their argument, though their schema does not say so.
constexpr auto kSilentViews = std::to_array<std::string_view>({
    "aten::_unsafe_view", "aten::_reshape_alias", "aten::lift_fresh", "aten::contiguous",
    "aten::reshape", "aten::detach", "aten::alias"});

/// Cheap next to their bytes, or without values yet.
constexpr auto kCheap = std::to_array<std::string_view>({
    "aten::_to_copy", "aten::clone", "aten::copy", "aten::empty", "aten::empty_like",
    "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided", "aten::zeros",
    "aten::zeros_like", "aten::ones", "aten::ones_like", "aten::full", "aten::full_like",
    "aten::scalar_tensor", "aten::arange", "aten::_local_scalar_dense", "aten::is_nonzero",
    "aten::equal"});
// clang-format on

bool IsSilentView(std::string_view name) {
  return std::ranges::find(kSilentViews, name) != kSilentViews.end();
}

bool IsCheap(std::string_view name) {
  return std::ranges::find(kCheap, name) != kCheap.end() || IsSilentView(name);
}

template <typename Function>
void ForEachTensorOf(const c10::IValue& value, const Function& function) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) function(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) function(tensor);
    }
  }
}

/// The same memory and counter of versions, without the graph, which would hold the segment.
at::Tensor WithoutGraph(const at::Tensor& tensor) { return tensor.tensor_data(); }
/// The same memory with a counter of its own: what a second run does is no change.
at::Tensor Anew(const at::Tensor& tensor) { return tensor.variable_data(); }

/// `change` of each tensor.
template <typename Change>
c10::IValue Changed(const c10::IValue& value, const Change& change) {
  const auto change_one = [&](const at::Tensor& t) { return t.defined() ? change(t) : t; };
  if (value.isTensor()) return change_one(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(change_one(tensor));
  return list;
}

void Handle(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
            torch::jit::Stack* stack) {
  KeepContext* const context = current;
  if (context == nullptr || (context->recorded == nullptr && context->replayed == nullptr)) {
    return RunBelow(operation, keys, stack);
  }
  if (context->recorded != nullptr) {
    context->recorded->Record(operation, keys, stack, context->scopes > 0);
  } else {
    context->replayed->Replay(context->next, operation, keys, stack, context->scopes > 0);
  }
}

/// Takes the dispatch key for the process, once. False if another library has it.
bool TakeKey() {
  static const bool is_taken = [] {
    if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kKey)) return false;
    // Never destroyed: operators may run to the end of the process.
    auto* const library = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&Handle>());
    return true;
  }();
  return is_taken;
}

void RequireKey() {
  if (TakeKey()) return;
  ThrowOnError(FailedPreconditionError(
      "nothing can be kept in checkpointed segments: another library of this process has "
      "registered a fallback for libtorch's dispatch key Fake, by which it works; leave Keep out"));
}

}  // namespace

KeptResults::KeptResults(std::string segment, std::vector<std::string> operators,
                         std::vector<at::Generator> generators, bool preserves_random)
    : segment_(std::move(segment)),
      operators_(std::move(operators)),
      generators_(std::move(generators)),
      preserves_random_(preserves_random) {}

bool KeptResults::Wants(const c10::OperatorHandle& operation, bool in_scope) const {
  const c10::FunctionSchema& schema = operation.schema();
  if (!MakesResults(schema) || Writes(schema)) return false;
  if (in_scope) return !IsCheap(schema.name());
  return std::ranges::find(operators_, schema.name()) != operators_.end();
}

const KeptResults::Entry* KeptResults::EntryWith(const at::Tensor& tensor) const {
  if (!tensor.has_storage()) return nullptr;
  for (const Entry& entry : entries_) {
    bool is_found = false;
    for (const c10::IValue& result : entry.results) {
      ForEachTensorOf(result, [&](const at::Tensor& kept) {
        is_found = is_found || (kept.has_storage() && kept.storage().is_alias_of(tensor.storage()));
      });
    }
    if (is_found) return &entry;
  }
  return nullptr;
}

KeptResults::Entry* KeptResults::EntryWith(const at::Tensor& tensor) {
  return const_cast<Entry*>(std::as_const(*this).EntryWith(tensor));
}

void KeptResults::RenewVersions() {
  if (!changed_.has_value()) return;
  for (SavedVersion& version : entries_[*changed_].versions) version.Renew();
  changed_.reset();
}

void KeptResults::Record(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                         torch::jit::Stack* stack, bool in_scope) {
  RenewVersions();
  const c10::FunctionSchema& schema = operation.schema();
  const std::size_t arguments = schema.arguments().size();
  if (KeepChanged(operation, *stack)) return RunBelow(operation, keys, stack);
  const bool is_silent_view = IsSilentView(schema.name());
  const bool reads = Writes(schema) || (MakesResults(schema) && !is_silent_view);
  Entry* shared = nullptr;
  for (std::size_t i = 0; i < arguments; ++i) {
    ForEachTensorOf(torch::jit::peek(*stack, i, arguments), [&](const at::Tensor& tensor) {
      Entry* const entry = EntryWith(tensor);
      if (entry == nullptr) return;
      if (IsWritten(schema.arguments()[i])) return Forget(*entry);
      if (reads) entry->is_read = true;
      shared = entry;
    });
  }
  RunBelow(operation, keys, stack);
  if (Wants(operation, in_scope)) return Keep(operation, *stack);
  if (shared == nullptr || !is_silent_view) return;
  // It has a counter of its own, by which changes of this memory are seen as well.
  ForEachTensorOf(stack->back(), [&](const at::Tensor& tensor) {
    if (EntryWith(tensor) == shared) shared->versions.emplace_back(tensor);
  });
}

void KeptResults::Keep(const c10::OperatorHandle& operation, const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = operation.schema();
  Entry entry{.operation = schema.name()};
  for (const c10::IValue& result : torch::jit::last(stack, schema.returns().size())) {
    entry.results.push_back(Changed(result, WithoutGraph));
    ForEachTensorOf(entry.results.back(), [&](const at::Tensor& tensor) {
      entry.versions.emplace_back(tensor);
      bytes_ += static_cast<std::int64_t>(tensor.nbytes());
    });
  }
  if (preserves_random_ && operation.hasTag(at::Tag::nondeterministic_seeded)) {
    entry.random = RandomState::Take(generators_);
  }
  entries_.push_back(std::move(entry));
}

bool KeptResults::KeepChanged(const c10::OperatorHandle& operation,
                              const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = operation.schema();
  const std::size_t arguments = schema.arguments().size();
  if (!IsInPlace(schema) || operation.hasTag(at::Tag::nondeterministic_seeded)) return false;
  const c10::IValue& changed = torch::jit::peek(stack, 0, arguments);
  if (!changed.isTensor() || !changed.toTensor().defined()) return false;
  const Entry* const entry = EntryWith(changed.toTensor());
  if (entry == nullptr || entry->is_read) return false;
  bool reads_itself = false;
  for (std::size_t i = 1; i < arguments; ++i) {
    ForEachTensorOf(torch::jit::peek(stack, i, arguments), [&](const at::Tensor& tensor) {
      reads_itself = reads_itself || EntryWith(tensor) == entry;
    });
  }
  if (reads_itself) return false;
  changed_ = static_cast<std::size_t>(entry - entries_.data());
  entries_.push_back({.operation = schema.name(), .owner = *changed_, .is_in_place = true});
  return true;
}

void KeptResults::Forget(Entry& forgotten) {
  const auto owner = static_cast<std::size_t>(&forgotten - entries_.data());
  for (const c10::IValue& result : forgotten.results) {
    ForEachTensorOf(result, [&](const at::Tensor& tensor) {
      bytes_ -= static_cast<std::int64_t>(tensor.nbytes());
    });
  }
  forgotten = {.operation = std::move(forgotten.operation), .is_kept = false};
  for (Entry& entry : entries_) {
    if (entry.is_in_place && entry.owner == owner) entry.is_kept = false;
  }
}

void KeptResults::Replay(std::size_t& next, const c10::OperatorHandle& operation,
                         c10::DispatchKeySet keys, torch::jit::Stack* stack, bool in_scope) const {
  const c10::FunctionSchema& schema = operation.schema();
  const std::size_t arguments = schema.arguments().size();
  bool changes_kept = false;
  for (std::size_t i = 0; i < arguments; ++i) {
    if (!IsWritten(schema.arguments()[i])) continue;
    ForEachTensorOf(torch::jit::peek(*stack, i, arguments), [&](const at::Tensor& tensor) {
      changes_kept = changes_kept || EntryWith(tensor) != nullptr;
    });
  }
  if (!changes_kept && !Wants(operation, in_scope)) return RunBelow(operation, keys, stack);

  while (next < entries_.size() && entries_[next].is_in_place && !entries_[next].is_kept) ++next;
  const std::size_t number = next++;
  const auto fail = [&](const auto&... what) {
    ThrowOnError(FailedPreconditionError("checkpointed segment ", segment_, ": kept operation ",
                                         number, what...));
  };
  if (number >= entries_.size()) {
    fail(" is ", schema.name(), " when it runs again, and forward kept ", entries_.size());
  }
  const Entry& entry = entries_[number];
  if (entry.operation != schema.name() || entry.is_in_place != changes_kept) {
    fail(" was ", entry.operation, " in forward and is ", schema.name(), " when it runs again");
  }
  if (!entry.is_kept) return RunBelow(operation, keys, stack);
  if (entry.is_in_place) {
    torch::jit::drop(*stack, arguments - 1);  // what it changes comes back, changed already
    return;
  }
  for (const SavedVersion& version : entry.versions) {
    if (!version.changed()) continue;
    fail(", ", entry.operation, ": its result was changed in place after it was kept: it is at ",
         "version ", version.now(), ", expected version ", version.saved(),
         "; change it inside of the scope that keeps it, or change a copy");
  }
  torch::jit::drop(*stack, arguments);
  for (const c10::IValue& result : entry.results) stack->push_back(Changed(result, Anew));
  if (entry.random.has_value()) entry.random->Set();
}

KeepContextScope::KeepContextScope(KeepContext context, bool handles)
    : context_(context), before_(current) {
  if (handles) {
    RequireKey();
    handled_.emplace(kKey);
  }
  current = &context_;
}

KeepContextScope::~KeepContextScope() {
  if (context_.recorded != nullptr) context_.recorded->RenewVersions();
  current = before_;
}

}  // namespace internal

struct KeepScope::State {
  explicit State(internal::KeepContext& segment) : context(segment), handled(internal::kKey) {
    ++context.scopes;
  }
  ~State() {
    --context.scopes;
    if (context.recorded != nullptr) context.recorded->RenewVersions();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  internal::KeepContext& context;
  c10::impl::IncludeDispatchKeyGuard handled;
};

KeepScope::KeepScope() {
  internal::KeepContext* const context = internal::current;
  if (context == nullptr) return;
  if (context->recorded == nullptr && context->replayed == nullptr) return;
  internal::RequireKey();
  state_ = std::make_unique<State>(*context);
}

KeepScope::~KeepScope() = default;

std::vector<std::string> MatrixProducts() {
  return {"aten::mm",
          "aten::addmm",
          "aten::bmm",
          "aten::baddbmm",
          "aten::mv",
          "aten::addmv",
          "aten::dot",
          "aten::convolution",
          "aten::_convolution",
          "aten::linear",
          "aten::_addmm_activation",
          "aten::mkldnn_convolution",
          "aten::cudnn_convolution"};
}

std::vector<std::string> AttentionOperators() {
  return {"aten::_scaled_dot_product_flash_attention_for_cpu",
          "aten::_scaled_dot_product_flash_attention",
          "aten::_scaled_dot_product_efficient_attention",
          "aten::_scaled_dot_product_cudnn_attention",
          "aten::_scaled_dot_product_fused_attention_overrideable",
          "aten::_scaled_dot_product_attention_math"};
}

}  // namespace ait::inline v0
