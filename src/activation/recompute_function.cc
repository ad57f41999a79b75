// SPDX-License-Identifier: Apache-2.0

// Keep the order.
#include "activation/recompute_function_internal.h"
// clang-format off
#include <ATen/SequenceNumber.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
// clang-format on

#include <mutex>
#include <unordered_set>
#include <utility>

#include "ait/base/throw_on_error.h"

namespace ait::inline v0::internal {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// Runs a segment again and gives the gradients of its inputs, then of its parameters.
class RecomputeNode final : public Node {
 public:
  RecomputeNode(std::shared_ptr<SegmentReplay> replay, std::vector<at::Tensor> parameters)
      : replay_(std::move(replay)), parameters_(std::move(parameters)) {
    for (const at::Tensor& parameter : parameters_) versions_.emplace_back(parameter);
  }

  void ExpectResults(const std::vector<at::Tensor>& results) {
    for (const at::Tensor& result : results) {
      results_.emplace_back(result.defined() ? std::optional(TensorMetadata(result))
                                             : std::nullopt);
    }
  }
  /// Number of the result of which input i of this node is the gradient.
  std::vector<std::size_t> differentiable;

  variable_list apply(variable_list&& gradients) override;

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    replay_ = nullptr;
    parameters_.clear();
  }
  std::string name() const override { return "ait::Checkpoint"; }

 private:
  void Check(const SegmentReplay& replay, const std::vector<at::Tensor>& results) const;

  std::shared_ptr<SegmentReplay> replay_;
  std::vector<at::Tensor> parameters_;
  std::vector<SavedVersion> versions_;  // of parameters_
  std::vector<std::optional<TensorMetadata>> results_;
};

void RecomputeNode::Check(const SegmentReplay& replay,
                          const std::vector<at::Tensor>& results) const {
  const std::string segment = StrCat("checkpointed segment ", replay.options().name, ": ");
  if (results.size() != results_.size()) {
    ThrowOnError(FailedPreconditionError(segment, "the function returned ", results_.size(),
                                         " tensors in forward and ", results.size(),
                                         " when it runs again"));
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const bool is_same =
        results[i].defined() == results_[i].has_value() &&
        (!results[i].defined() || SameButStrides(TensorMetadata(results[i]), *results_[i]));
    if (is_same) continue;
    ThrowOnError(FailedPreconditionError(
        segment, "result ", i, " was ", results_[i] ? Describe(*results_[i]) : "undefined",
        " in forward and is ",
        results[i].defined() ? Describe(TensorMetadata(results[i])) : "undefined",
        " when it runs again"));
  }
}

variable_list RecomputeNode::apply(variable_list&& gradients) {
  // Another backward may release them meanwhile.
  std::shared_ptr<SegmentReplay> replay;
  std::vector<at::Tensor> parameters;
  {
    const std::lock_guard lock(mutex_);
    replay = replay_;
    parameters = parameters_;
  }
  TORCH_CHECK(replay != nullptr, torch::autograd::ERR_BACKWARD_TWICE);
  const CheckpointOptions& options = replay->options();
  if (c10::GradMode::is_enabled()) {
    ThrowOnError(UnimplementedError(
        "checkpointed segment ", options.name,
        ": second-order gradients (create_graph) go through segments only where saved tensors can "
        "be had: ",
        std::string(SavedTensorScope::Available().message())));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!versions_[i].changed()) continue;
    ThrowOnError(FailedPreconditionError(
        "checkpointed segment ", options.name, ": a parameter, ",
        Describe(TensorMetadata(parameters[i])), ", was changed in place after forward: it is at ",
        "version ", versions_[i].now(), ", expected version ", versions_[i].saved()));
  }
  const std::vector<at::Tensor> inputs = replay->RestoreInputs();
  std::vector<at::Tensor> results;
  if (options.counters != nullptr) ++options.counters->recomputes;
  replay->Run(inputs, &results);
  Check(*replay, results);

  variable_list outputs, output_gradients, sources;
  for (std::size_t i = 0; i < differentiable.size(); ++i) {
    const at::Tensor& result = results[differentiable[i]];
    if (!gradients[i].defined() || !result.requires_grad()) continue;
    outputs.push_back(result);
    output_gradients.push_back(gradients[i]);
  }
  std::vector<std::size_t> places;  // of sources
  for (std::size_t i = 0; i < inputs.size() + parameters.size(); ++i) {
    if (!task_should_compute_output(i)) continue;
    const at::Tensor& source = i < inputs.size() ? inputs[i] : parameters[i - inputs.size()];
    if (!source.defined() || !source.requires_grad()) continue;
    sources.push_back(source);
    places.push_back(i);
  }
  variable_list found(inputs.size() + parameters.size());
  if (outputs.empty() || sources.empty()) return found;
  const variable_list computed = torch::autograd::grad(
      outputs, sources, output_gradients, /*retain_graph=*/false, /*create_graph=*/false,
      /*allow_unused=*/true);
  for (std::size_t i = 0; i < places.size(); ++i) found[places[i]] = computed[i];
  return found;
}

/// The leaves behind `results` that are none of `inputs`. Refuses a graph from before `first_node`.
std::vector<at::Tensor> FindParameters(const std::vector<at::Tensor>& results,
                                       const std::vector<at::Tensor>& inputs,
                                       std::uint64_t first_node, const std::string& segment) {
  std::unordered_set<const void*> seen;
  std::vector<at::Tensor> parameters;
  const auto add_leaf = [&](const at::Tensor& leaf) {
    if (seen.insert(leaf.unsafeGetTensorImpl()).second) parameters.push_back(leaf);
  };
  for (const at::Tensor& input : inputs) {
    if (input.defined()) seen.insert(input.unsafeGetTensorImpl());
  }
  std::vector<Node*> nodes;
  const auto add = [&](Node* node) {
    if (node == nullptr || !seen.insert(node).second) return;
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) {
      add_leaf(leaf->variable);
      return;
    }
    if (node->sequence_nr() < first_node) {
      ThrowOnError(FailedPreconditionError(
          "checkpointed segment ", segment,
          ": its function uses a tensor that was computed before it (", node->name(),
          ") and is none of its inputs, so that no gradient would reach it; make it an input"));
    }
    nodes.push_back(node);
  };
  for (const at::Tensor& result : results) {
    if (!result.defined() || !result.requires_grad()) continue;
    if (result.is_leaf()) {
      add_leaf(result);
    } else {
      add(result.grad_fn().get());
    }
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const auto& edge : nodes[i]->next_edges()) add(edge.function.get());
  }
  return parameters;
}

}  // namespace

std::vector<at::Tensor> RunAsFunction(const std::shared_ptr<SegmentReplay>& replay,
                                      const std::vector<at::Tensor>& inputs,
                                      const CheckpointCall::Function& first) {
  const std::vector<at::Tensor> leaves = replay->RestoreInputs();
  std::vector<at::Tensor> results;
  const std::uint64_t first_node = at::sequence_number::peek();
  first(leaves, &results);
  std::vector<at::Tensor> parameters =
      FindParameters(results, leaves, first_node, replay->options().name);

  torch::autograd::edge_list edges;
  for (const at::Tensor& input : inputs) {
    edges.push_back(input.defined() && input.requires_grad()
                        ? torch::autograd::impl::gradient_edge(input)
                        : torch::autograd::Edge());
  }
  for (const at::Tensor& parameter : parameters) {
    edges.push_back(torch::autograd::impl::gradient_edge(parameter));
  }
  const auto node = std::shared_ptr<RecomputeNode>(new RecomputeNode(replay, std::move(parameters)),
                                                   torch::autograd::deleteNode);
  node->set_next_edges(std::move(edges));
  node->ExpectResults(results);
  std::vector<at::Tensor> anew;
  for (std::size_t i = 0; i < results.size(); ++i) {
    anew.push_back(results[i].defined() ? results[i].detach() : at::Tensor());
    if (!results[i].defined() || !results[i].requires_grad()) continue;
    node->differentiable.push_back(i);
    torch::autograd::create_gradient_edge(anew.back(), node);
  }
  return anew;
}

}  // namespace ait::inline v0::internal
