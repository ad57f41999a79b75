// SPDX-License-Identifier: Apache-2.0
#include "parallel/unit_store_internal.h"
// The tensor first.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <limits>
#include <unordered_set>
#include <utility>

#include "ait/base/throw_on_error.h"

namespace ait::inline v0::internal {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// The use that a backward makes of a unit through the nodes of one call. It begins before the first
// of them runs and ends after the last that this backward will run; or with that backward.
class BackwardUse : public std::enable_shared_from_this<BackwardUse> {
 public:
  BackwardUse(std::shared_ptr<UnitTarget> target, int unit, std::vector<Node*> nodes)
      : target_(std::move(target)), unit_(unit), nodes_(std::move(nodes)) {}

  void Before(std::size_t i) {
    if (target_->store == nullptr) return;  // the tensors say so
    if (!holds()) Begin();
    if (waiting_[i] == 0) {  // a backward inside of the backward that began it
      waiting_[i] = 1;
      ++left_;
    }
  }

  void After(std::size_t i) {
    if (!holds() || waiting_[i] == 0) return;
    waiting_[i] = 0;
    if (--left_ == 0) End();
  }

  void Forget(std::size_t i) { nodes_[i] = nullptr; }

 private:
  bool holds() const { return holds_ && target_->store != nullptr && epoch_ == target_->epoch; }

  void Begin() {
    ThrowOnError(target_->store->Enter(unit_));
    holds_ = true;
    epoch_ = target_->epoch;
    left_ = 0;
    waiting_.assign(nodes_.size(), 0);
    const auto* in_graph = torch::autograd::get_current_graph_task_nodes_in_graph();
    const auto* plan = torch::autograd::get_current_graph_task_exec_info();
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i] == nullptr || in_graph == nullptr || !in_graph->contains(nodes_[i])) continue;
      if (plan != nullptr && !plan->empty()) {
        const auto found = plan->find(nodes_[i]);
        if (found == plan->end() || !found->second.should_execute()) continue;
      }
      waiting_[i] = 1;
      ++left_;
    }
    // Nodes that do not run after all.
    torch::autograd::Engine::get_default_engine().queue_callback(
        [use = weak_from_this(), number = ++number_] {
          const auto self = use.lock();
          if (self != nullptr && self->number_ == number && self->holds()) self->End();
        });
  }

  void End() {
    holds_ = false;
    target_->store->Leave(unit_);
  }

  std::shared_ptr<UnitTarget> target_;
  const int unit_;
  std::vector<Node*> nodes_;  // null: it has gone
  std::vector<char> waiting_;
  std::size_t left_ = 0;
  bool holds_ = false;
  std::int64_t epoch_ = 0;
  std::int64_t number_ = 0;
};

class EnterHook final : public torch::autograd::FunctionPreHook {
 public:
  EnterHook(std::shared_ptr<BackwardUse> use, std::size_t node)
      : use_(std::move(use)), node_(node) {}
  ~EnterHook() override { use_->Forget(node_); }

  variable_list operator()(const variable_list& gradients) override {
    use_->Before(node_);
    return gradients;
  }

 private:
  std::shared_ptr<BackwardUse> use_;
  std::size_t node_;
};

class LeaveHook final : public torch::autograd::FunctionPostHook {
 public:
  LeaveHook(std::shared_ptr<BackwardUse> use, std::size_t node)
      : use_(std::move(use)), node_(node) {}

  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    use_->After(node_);
    return outputs;
  }

 private:
  std::shared_ptr<BackwardUse> use_;
  std::size_t node_;
};

// The nodes behind `results` that are not older than `first_node`. Those that add to a gradient
// have no age, and need no parameter.
std::vector<Node*> NodesSince(std::span<const at::Tensor> results, std::uint64_t first_node) {
  std::vector<Node*> nodes;
  std::unordered_set<Node*> seen;
  const auto add = [&](Node* node) {
    if (node == nullptr || node->sequence_nr() < first_node ||
        node->sequence_nr() == std::numeric_limits<std::uint64_t>::max()) {
      return;
    }
    if (seen.insert(node).second) nodes.push_back(node);
  };
  for (const at::Tensor& result : results) {
    if (result.defined()) add(result.grad_fn().get());
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const auto& edge : nodes[i]->next_edges()) add(edge.function.get());
  }
  return nodes;
}

}  // namespace

void UnitStore::Watch(int unit, std::span<const at::Tensor> results, std::uint64_t first_node) {
  std::vector<Node*> nodes = NodesSince(results, first_node);
  if (nodes.empty()) return;
  const auto use = std::make_shared<BackwardUse>(target_, unit, nodes);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i]->add_pre_hook(std::make_unique<EnterHook>(use, i));
    nodes[i]->add_post_hook(std::make_unique<LeaveHook>(use, i));
  }
}

}  // namespace ait::inline v0::internal
