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

/// Results that are new memory with values in it: not views, not what is written in place.
bool MakesResults(const c10::FunctionSchema& schema) {
  return !schema.returns().empty() &&
         std::ranges::none_of(schema.returns(),
                              [](const c10::Argument& r) { return r.alias_info() != nullptr; });
}

bool Writes(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& a) {
    return a.alias_info() != nullptr && a.alias_info()->isWrite();
  });
}

/// Cheap next to its bytes, or without values yet.
bool IsCheap(std::string_view name) {
  static constexpr auto kNames = std::to_array<std::string_view>({"aten::_to_copy",
                                                                  "aten::clone",
                                                                  "aten::copy",
                                                                  "aten::contiguous",
                                                                  "aten::empty",
                                                                  "aten::empty_like",
                                                                  "aten::empty_strided",
                                                                  "aten::new_empty",
                                                                  "aten::new_empty_strided",
                                                                  "aten::_local_scalar_dense",
                                                                  "aten::zeros",
                                                                  "aten::zeros_like",
                                                                  "aten::ones",
                                                                  "aten::ones_like",
                                                                  "aten::full",
                                                                  "aten::full_like",
                                                                  "aten::scalar_tensor",
                                                                  "aten::arange",
                                                                  "aten::lift_fresh",
                                                                  "aten::_reshape_alias",
                                                                  "aten::_unsafe_view",
                                                                  "aten::detach",
                                                                  "aten::alias",
                                                                  "aten::is_nonzero",
                                                                  "aten::equal"});
  return std::ranges::find(kNames, name) != kNames.end();
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
at::Tensor WithoutGraph(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.tensor_data() : tensor;
}

c10::IValue WithoutGraph(const c10::IValue& value) {
  if (value.isTensor()) return WithoutGraph(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(WithoutGraph(tensor));
  return list;
}

void Handle(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
            torch::jit::Stack* stack) {
  KeepContext* const context = current;
  if (context == nullptr || (context->recorded == nullptr && context->replayed == nullptr)) {
    return RunBelow(operation, keys, stack);
  }
  const KeptResults& kept = context->recorded != nullptr ? *context->recorded : *context->replayed;
  const c10::FunctionSchema& schema = operation.schema();
  if (context->recorded != nullptr && Writes(schema)) {
    context->recorded->Forget(operation, *stack);
  }
  const bool is_meant = context->scopes > 0 ? !IsCheap(schema.name()) : kept.Wants(operation);
  if (!is_meant || !MakesResults(schema) || Writes(schema)) {
    return RunBelow(operation, keys, stack);
  }
  if (context->recorded != nullptr) {
    context->recorded->Record(operation, keys, stack);
  } else {
    context->replayed->Replay(context->next++, operation, keys, stack);
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
                         std::vector<at::Generator> generators)
    : segment_(std::move(segment)),
      operators_(std::move(operators)),
      generators_(std::move(generators)) {}

bool KeptResults::Wants(const c10::OperatorHandle& operation) const {
  return std::ranges::find(operators_, operation.schema().name()) != operators_.end();
}

void KeptResults::Record(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                         torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = operation.schema();
  RunBelow(operation, keys, stack);
  Entry entry{.operation = schema.name()};
  for (const c10::IValue& result : torch::jit::last(*stack, schema.returns().size())) {
    entry.results.push_back(WithoutGraph(result));
    ForEachTensorOf(entry.results.back(), [&](const at::Tensor& tensor) {
      entry.versions.emplace_back(tensor);
      bytes_ += static_cast<std::int64_t>(tensor.nbytes());
    });
  }
  if (operation.hasTag(at::Tag::nondeterministic_seeded)) {
    entry.random = RandomState::Take(generators_);
  }
  entries_.push_back(std::move(entry));
}

void KeptResults::Replay(std::size_t number, const c10::OperatorHandle& operation,
                         c10::DispatchKeySet keys, torch::jit::Stack* stack) const {
  const c10::FunctionSchema& schema = operation.schema();
  const auto fail = [&](const auto&... what) {
    ThrowOnError(FailedPreconditionError("checkpointed segment ", segment_, ": kept operation ",
                                         number, what...));
  };
  if (number >= entries_.size()) {
    fail(" is ", schema.name(), " when it runs again, and forward kept ", entries_.size());
  }
  const Entry& entry = entries_[number];
  if (entry.operation != schema.name()) {
    fail(" was ", entry.operation, " in forward and is ", schema.name(), " when it runs again");
  }
  if (!entry.is_kept) return RunBelow(operation, keys, stack);
  for (const SavedVersion& version : entry.versions) {
    if (!version.changed()) continue;
    fail(", ", entry.operation, ": its result was changed in place after it was kept: it is at ",
         "version ", version.now(), ", expected version ", version.saved(),
         "; change it inside of the scope that keeps it, or change a copy");
  }
  torch::jit::drop(*stack, schema.arguments().size());
  for (const c10::IValue& result : entry.results) stack->push_back(WithoutGraph(result));
  if (entry.random.has_value()) entry.random->Set();
}

void KeptResults::Forget(const c10::OperatorHandle& operation, const torch::jit::Stack& stack) {
  const auto& arguments = operation.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    ForEachTensorOf(torch::jit::peek(stack, i, arguments.size()), [&](const at::Tensor& changed) {
      if (!changed.has_storage()) return;
      for (Entry& entry : entries_) {
        bool is_changed = false;
        for (const c10::IValue& result : entry.results) {
          ForEachTensorOf(result, [&](const at::Tensor& tensor) {
            is_changed = is_changed ||
                         (tensor.has_storage() && tensor.storage().is_alias_of(changed.storage()));
          });
        }
        if (!is_changed) continue;
        for (const c10::IValue& result : entry.results) {
          ForEachTensorOf(result, [&](const at::Tensor& tensor) {
            bytes_ -= static_cast<std::int64_t>(tensor.nbytes());
          });
        }
        entry = {.operation = std::move(entry.operation), .is_kept = false};
      }
    });
  }
}

KeepContextScope::KeepContextScope(KeepContext context, bool handles)
    : context_(context), before_(current) {
  if (handles) {
    RequireKey();
    handled_.emplace(kKey);
  }
  current = &context_;
}

KeepContextScope::~KeepContextScope() { current = before_; }

}  // namespace internal

struct KeepScope::State {
  explicit State(internal::KeepContext& segment) : context(segment), handled(internal::kKey) {
    ++context.scopes;
  }
  ~State() { --context.scopes; }
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
