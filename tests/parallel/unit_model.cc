// SPDX-License-Identifier: Apache-2.0
#include "parallel/unit_model.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "ait/parallel/parameter_unit.h"
#include "ait/parallel/unit.h"
#include "parallel/tiny_model.h"

namespace ait::testing {
namespace {

struct Recompute : torch::autograd::Function<Recompute> {
  using Function = std::function<at::Tensor(const at::Tensor&)>;

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Function* function) {
    context->save_for_backward({x});
    auto copy = std::make_shared<Function>(*function);
    context->saved_data["function"] =
        c10::IValue::make_capsule(c10::make_intrusive<Holder>(std::move(copy)));
    const c10::NoGradGuard no_grad;
    return (*function)(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto capsule = context->saved_data["function"].toCapsule();
    const Function& function = *static_cast<Holder*>(capsule.get())->function;
    const at::Tensor x = context->get_saved_variables()[0].detach().set_requires_grad(true);
    at::Tensor y;
    {
      const c10::AutoGradMode with_grad(true);
      y = function(x);
    }
    y.backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }

  struct Holder : torch::CustomClassHolder {
    explicit Holder(std::shared_ptr<Function> f) : function(std::move(f)) {}
    std::shared_ptr<Function> function;
  };
};

}  // namespace

at::Tensor Checkpointed(const std::function<at::Tensor(const at::Tensor&)>& function,
                        const at::Tensor& x) {
  return Recompute::apply(x, &function);
}

UnitModel::UnitModel(int seed)
    : embedding(Leaf({kVocabulary, kWidth}, seed * 100 + 1)),
      position(Leaf({kWidth}, seed * 100 + 2)),
      side(Leaf({kWidth, kWidth}, seed * 100 + 3)) {
  for (int i = 0; i < kBlocks; ++i) {
    const int base = seed * 100 + 10 * (i + 1);
    blocks.push_back({.norm = Leaf({kWidth}, base + 1, 1.0),
                      .up = Leaf({2 * kWidth + i, kWidth}, base + 2),
                      .up_bias = Leaf({2 * kWidth + i}, base + 3),
                      .down = Leaf({kWidth, 2 * kWidth + i}, base + 4),
                      .frozen = Values({kWidth, kWidth}, base + 5),
                      .unused = Leaf({5, 3}, base + 6),
                      .empty = Leaf({0, 4}, base + 7)});
  }
}

at::Tensor UnitModel::RunBlock(DataParallel& engine, int i, const at::Tensor& x, bool share) const {
  const auto index = static_cast<std::size_t>(i);
  const Block& block = blocks[index];
  // Two results, and a unit inside of a unit: every block uses what the first one has.
  const auto [hidden, kept] = engine.Unit(StrCat("blocks.", i), [&] {
    const at::Tensor y = at::layer_norm(x, {kWidth}, block.norm);
    const at::Tensor inner =
        share ? engine.Unit("blocks.0", [&] { return at::linear(y, blocks[0].up); }) : y;
    return std::pair(at::linear(at::tanh(at::linear(y, block.up, block.up_bias)), block.down),
                     std::vector<at::Tensor>{inner.narrow(-1, 0, kWidth)});
  });
  return engine.Unit(StrCat("blocks.", i), [&] {  // the same a second time
    return x.add(at::linear(hidden.add(kept[0]), block.frozen));
  });
}

at::Tensor UnitModel::Loss(DataParallel& engine, const at::Tensor& tokens,
                           const at::Tensor& targets, const Options& options) const {
  at::Tensor x = engine.Unit("embedding", [&] { return at::embedding(embedding, tokens); });
  x = x.mul(position);
  for (int i = 0; i < kBlocks; ++i) {
    const auto run = [this, &engine, i, share = options.share](const at::Tensor& in) {
      return RunBlock(engine, i, in, share);
    };
    x = options.checkpoint ? Checkpointed(run, x) : run(x);
  }
  if (!options.skip_side) x = x.add(engine.Unit("side", [&] { return at::linear(x, side); }));
  return engine.Unit("embedding", [&] {
    return at::cross_entropy_loss(at::linear(x, embedding), targets, {}, at::Reduction::Sum);
  });
}

NamedTensors UnitModel::Parameters() const {
  NamedTensors list;
  list.Add("embedding.weight", embedding);
  list.Add("position", position);
  for (int i = 0; i < kBlocks; ++i) {
    const Block& block = blocks[static_cast<std::size_t>(i)];
    const std::string name = StrCat("blocks.", i, ".");
    list.Add(name + "norm", block.norm);
    list.Add(name + "up", block.up);
    list.Add(name + "up_bias", block.up_bias);
    list.Add(name + "down", block.down);
    list.Add(name + "frozen", block.frozen);
    list.Add(name + "unused", block.unused);
    list.Add(name + "empty", block.empty);
  }
  list.Add("side", side);
  list.Add("embedding.head", embedding);
  return list;
}

std::vector<ParameterUnit> UnitModel::Units() {
  std::vector<ParameterUnit> units = UnitsUnder("blocks", UnitModel(1).Parameters());
  units.push_back({.name = "embedding", .patterns = {"embedding.*"}});
  units.push_back({.name = "side", .patterns = {"side"}});
  return units;
}

}  // namespace ait::testing
