// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "ait/activation/saved_tensors.h"
#include "ait/tensor/autocast.h"

namespace ait {
namespace {

/// Equal to the bit, and so that NaN equals itself.
bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

at::Tensor Parameter(at::IntArrayRef sizes) {
  return (at::randn(sizes) / 4).set_requires_grad(true);
}

/// How a model runs its blocks.
enum class Mode { kPlain, kCheckpointed };

template <typename Function, typename... Inputs>
auto Call(Mode mode, const CheckpointOptions& options, const Function& function,
          const Inputs&... inputs) {
  if (mode == Mode::kCheckpointed) return Checkpoint(options, function, inputs...);
  return std::invoke(function, inputs...);
}

/// A residual block with a norm, a product, an activation and dropout.
struct Block {
  at::Tensor scale = Parameter({16}), up = Parameter({32, 16}), bias = Parameter({32}),
             down = Parameter({16, 32});
  double dropout = 0.25;

  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor hidden = at::gelu(at::linear(at::layer_norm(x, {16}, scale), up, bias));
    return x + at::dropout(at::linear(hidden, down), dropout, true);
  }
};

struct Model {
  std::vector<Block> blocks;
  at::Tensor head = Parameter({8, 16});

  explicit Model(int depth) : blocks(static_cast<std::size_t>(depth)) {}
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all = {head};
    for (const Block& b : blocks) all.insert(all.end(), {b.scale, b.up, b.bias, b.down});
    return all;
  }
  void ZeroGradients() const {
    for (at::Tensor p : parameters()) p.mutable_grad() = at::Tensor();
  }
  std::vector<at::Tensor> Gradients() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& p : parameters()) all.push_back(p.grad());
    return all;
  }
};

struct Outcome {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
  at::Tensor next_random;  // the generator goes on from the same place
};

/// The loss of `forward` and the gradients of the model, from a fixed seed.
template <typename Forward>
Outcome Train(const Model& model, const Forward& forward) {
  model.ZeroGradients();
  at::manual_seed(11);
  const at::Tensor loss = forward();
  const at::Tensor next_random = at::rand({4});
  loss.backward();
  return {loss.detach(), model.Gradients(), next_random};
}

void ExpectSame(const Outcome& plain, const Outcome& checkpointed) {
  EXPECT_TRUE(SameBits(plain.loss, checkpointed.loss)) << plain.loss << checkpointed.loss;
  EXPECT_TRUE(SameBits(plain.next_random, checkpointed.next_random));
  ASSERT_EQ(plain.gradients.size(), checkpointed.gradients.size());
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
    EXPECT_TRUE(SameBits(plain.gradients[i], checkpointed.gradients[i])) << "gradient " << i;
  }
}

/// Runs `forward(mode)` both ways.
template <typename Forward>
void ExpectEqualToPlain(const Model& model, const Forward& forward) {
  const Outcome plain = Train(model, [&] { return forward(Mode::kPlain); });
  ASSERT_TRUE(plain.gradients[0].defined());
  ExpectSame(plain, Train(model, [&] { return forward(Mode::kCheckpointed); }));
}

at::Tensor Input() { return at::linspace(-2, 2, 6 * 16).view({6, 16}).clone(); }

at::Tensor Forward(const Model& model, Mode mode, const CheckpointOptions& options = {}) {
  at::Tensor x = Input();
  for (const Block& block : model.blocks) x = Call(mode, options, std::cref(block), x);
  return at::linear(x, model.head).square().sum();
}

TEST(Checkpoint, IsThePlainRunBitForBitThoughNoInputRequiresGrad) {
  const Model model(4);
  ExpectEqualToPlain(model, [&](Mode mode) { return Forward(model, mode); });
}

TEST(Checkpoint, KeepsNothingOfASegmentButItsInput) {
  const Model model(3);
  const auto counters = std::make_shared<CheckpointCounters>();
  const at::Tensor loss = Forward(model, Mode::kCheckpointed, {.counters = counters});
  EXPECT_EQ(counters->segments, 3);
  EXPECT_GT(counters->dropped_tensors, 3 * 5);
  EXPECT_EQ(counters->recomputes, 0);
  loss.backward();
  EXPECT_EQ(counters->recomputes, 3);
  EXPECT_GT(counters->recomputed_bytes, 0);
}

TEST(Checkpoint, UnderAutocastIsThePlainRunBitForBit) {
  const Model model(3);
  for (const auto cache : {Autocast::Cache::kOn, Autocast::Cache::kOff}) {
    ExpectEqualToPlain(model, [&](Mode mode) {
      const Autocast bf16(DType::kBFloat16, Autocast::Device::kCpu, cache);
      return Forward(model, mode);
    });
  }
}

TEST(Checkpoint, SharesWeightsBetweenSegments) {
  Model model(3);
  model.blocks[1] = model.blocks[0];
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    ExpectEqualToPlain(model, [&](Mode mode) {
      const Autocast autocast(dtype);
      return Forward(model, mode);
    });
  }
}

TEST(Checkpoint, Nests) {
  const Model model(4);
  ExpectEqualToPlain(model, [&](Mode mode) {
    const auto pair = [&model, mode](std::size_t first, const at::Tensor& x) {
      const at::Tensor y = Call(mode, {.name = "inner"}, std::cref(model.blocks[first]), x);
      return Call(mode, {.name = "inner"}, std::cref(model.blocks[first + 1]), y.sin());
    };
    at::Tensor x = Call(mode, {.name = "outer"}, pair, std::size_t{0}, Input());
    x = Call(mode, {.name = "outer"}, pair, std::size_t{2}, x);
    const auto all = [pair, mode](const at::Tensor& y) {
      return Call(mode, {}, pair, std::size_t{0}, y);
    };
    return at::linear(Call(mode, {.name = "outermost"}, all, x), model.head).sum();
  });
}

TEST(Checkpoint, SeveralBackwardPassesRecomputeEach) {
  const Model model(2);
  const auto counters = std::make_shared<CheckpointCounters>();
  const auto run = [&](Mode mode) {
    return Train(model, [&] {
      const at::Tensor loss = Forward(model, mode, {.counters = counters});
      loss.backward({}, true);
      return loss;
    });
  };
  ExpectSame(run(Mode::kPlain), run(Mode::kCheckpointed));
  EXPECT_EQ(counters->recomputes, 4);
}

// Inputs and results of any structure.

struct Attended {
  at::Tensor values;
  std::vector<at::Tensor> caches;
  int heads = 0;
};

template <typename Visit>
void VisitTensors(const Attended& attended, Visit&& visit) {
  visit(attended.values);
  visit(attended.caches);
}

using Structured = std::tuple<Attended, std::map<std::string, at::Tensor>,
                              std::optional<at::Tensor>, std::variant<int, at::Tensor>>;

TEST(Checkpoint, TakesAndReturnsAnyStructure) {
  const Model model(1);
  const Block& block = model.blocks[0];
  const auto function = [&block](const Attended& in, std::map<std::string, at::Tensor> named,
                                 std::optional<at::Tensor> maybe, std::optional<at::Tensor> none,
                                 double factor) -> Structured {
    EXPECT_FALSE(none.has_value());
    EXPECT_EQ(in.heads, 3);
    EXPECT_FALSE(in.caches[1].defined());
    const at::Tensor y = block(in.values * in.caches[0]).tanh();
    named["y"] = y * named.at("scale") * factor;
    return {Attended{y.sin(), {y.exp(), at::Tensor()}, in.heads}, named, *maybe * y, y.cos()};
  };
  ExpectEqualToPlain(model, [&](Mode mode) {
    const at::Tensor x = at::linear(Input(), at::linear(model.head.t(), model.head.t()));
    const Attended in{x, {x.sigmoid(), at::Tensor()}, 3};
    const auto [out, named, maybe, either] =
        Call(mode, {}, function, in, std::map<std::string, at::Tensor>{{"scale", x.cos()}},
             std::optional(x.exp()), std::optional<at::Tensor>(), 0.5);
    EXPECT_EQ(out.heads, 3);
    EXPECT_FALSE(out.caches[1].defined());
    return (out.values + out.caches[0] + named.at("y") + named.at("scale") + *maybe +
            std::get<at::Tensor>(either))
        .sum();
  });
}

TEST(Checkpoint, CallsMembersAndMovesInputs) {
  const Model model(1);
  struct Layer {
    const Block* block;
    at::Tensor Run(at::Tensor&& x, std::string&& name) {
      EXPECT_EQ(name, "layer");
      return (*block)(std::move(x));
    }
  };
  const auto layer = std::make_shared<Layer>(Layer{&model.blocks[0]});
  ExpectEqualToPlain(model, [&](Mode mode) {
    at::Tensor y = mode == Mode::kPlain
                       ? layer->Run(Input(), "layer")
                       : Checkpoint(&Layer::Run, layer, Input(), std::string("layer"));
    return at::linear(y, model.head).sum();
  });
}

TEST(Checkpoint, AFunctionWithAStateStartsFromTheSameStateEachTime) {
  const Model model(1);
  auto counting = [&block = model.blocks[0], calls = 0](const at::Tensor& x) mutable {
    return block(x) * ++calls;
  };
  const at::Tensor y = Checkpoint(counting, Input());
  y.sum().backward({}, true);
  const at::Tensor once = model.blocks[0].up.grad().clone();
  y.sum().backward({}, true);
  EXPECT_TRUE(SameBits(model.blocks[0].up.grad(), once * 2));
}

TEST(Checkpoint, ReturnsNothingWhereTheFunctionDoes) {
  at::Tensor w = Parameter({3}), y;
  Checkpoint([&](const at::Tensor& x) { y = x.sin() * w; }, at::ones({3}));
  y.sum().backward();
  EXPECT_TRUE(SameBits(w.grad(), at::ones({3}).sin()));
}

TEST(Checkpoint, DetachedAndNoGradPartsAreAsInThePlainRun) {
  const Model model(2);
  const auto function = [&model](const at::Tensor& x) {
    const at::Tensor y = model.blocks[0](x);
    at::Tensor detached = y.detach().exp();
    {
      const at::NoGradGuard no_grad;
      detached = detached + model.blocks[1](y);
    }
    return std::pair(y * detached, detached);
  };
  ExpectEqualToPlain(model, [&](Mode mode) {
    const auto [y, detached] = Call(mode, {}, function, Input());
    EXPECT_FALSE(detached.requires_grad());
    return at::linear(model.blocks[1](y) * detached, model.head).sum();
  });
}

TEST(Checkpoint, WithoutGradModeOnlyCalls) {
  const Model model(1);
  const auto counters = std::make_shared<CheckpointCounters>();
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(Forward(model, Mode::kCheckpointed, {.counters = counters}).requires_grad());
  EXPECT_EQ(counters->segments, 0);
}

TEST(Checkpoint, IntegerInputsViewsAndUnusedOnesPass) {
  const Model model(1);
  const auto function = [&model](const at::Tensor& tokens, const at::Tensor& view,
                                 const at::Tensor&) {
    const at::Tensor rows = at::embedding(model.head, tokens) * view.t();
    return std::tuple(rows.narrow(0, 1, 2), rows, tokens + 1);
  };
  ExpectEqualToPlain(model, [&](Mode mode) {
    const at::Tensor tokens = at::arange(4).remainder(3), base = model.blocks[0].up.exp();
    const auto [part, rows, next] =
        Call(mode, {}, function, tokens, base.narrow(0, 4, 16).narrow(1, 2, 4), base);
    EXPECT_EQ(next.scalar_type(), at::kLong);
    return part.square().sum() + rows.sum() + model.blocks[0](rows).sum();
  });
}

TEST(Checkpoint, SecondOrderGradientsAreThoseOfThePlainRun) {
  const at::Tensor w = Parameter({5, 5});
  const auto second = [&](Mode mode) {
    const at::Tensor x = at::linspace(-1, 1, 10).view({2, 5}).set_requires_grad(true);
    const at::Tensor y =
        Call(mode, {}, [&w](const at::Tensor& z) { return at::tanh(z.mm(w)).square(); }, x);
    const at::Tensor g = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
    const at::Tensor h = torch::autograd::grad({g.square().sum()}, {x}, {}, true, true)[0];
    const auto last = torch::autograd::grad({h.sin().sum()}, {x, w});
    return std::vector<at::Tensor>{g, h, last[0], last[1]};
  };
  const auto plain = second(Mode::kPlain), checkpointed = second(Mode::kCheckpointed);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(SameBits(plain[i], checkpointed[i])) << "order " << i;
  }
}

TEST(Checkpoint, ABackwardInsideOfTheSegmentIsAsInThePlainRun) {
  const Model model(2);
  for (const bool early_stop : {true, false}) {
    ExpectEqualToPlain(model, [&](Mode mode) {
      const auto function = [&model](const at::Tensor& x) {
        const at::Tensor leaf = x.detach().set_requires_grad(true);
        const at::Tensor inner = torch::autograd::grad({model.blocks[0](leaf).square().sum()},
                                                       {leaf}, {}, true, true)[0];
        return model.blocks[1](x * inner.tanh());
      };
      return at::linear(Call(mode, {.early_stop = early_stop}, function, Input()), model.head)
          .sum();
    });
  }
}

TEST(Checkpoint, PartialBackwardLeavesNothingBehind) {
  const Model model(2);
  const auto counters = std::make_shared<CheckpointCounters>();
  const at::Tensor loss = Forward(model, Mode::kCheckpointed, {.counters = counters});
  const at::Tensor up = model.blocks[1].up;
  const at::Tensor first = torch::autograd::grad({loss}, {up}, {}, true)[0];
  EXPECT_EQ(counters->recomputes, 1);  // of the last block alone
  const at::Tensor second = torch::autograd::grad({loss}, {up}, {}, true)[0];
  EXPECT_TRUE(SameBits(first, second));
  loss.backward();
  EXPECT_EQ(counters->recomputes, 4);
  EXPECT_TRUE(SameBits(first, up.grad()));
}

TEST(Checkpoint, RecomputedTensorsGoWithTheBackwardThatAskedForThem) {
  const at::Tensor w = Parameter({8}), v = Parameter({8});
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> seen;
  const auto layer = [&](const at::Tensor& x) {
    const at::Tensor product = x * w, a = product.sin(), b = (a * v).cos();
    for (const at::Tensor& t : {product, a}) seen.push_back(t.storage().getWeakStorageImpl());
    return b.exp();
  };
  const auto alive = [&] {
    return std::ranges::count_if(seen, [](const auto& storage) { return !storage.expired(); });
  };
  const at::Tensor loss = Checkpoint(layer, at::ones({8})).sum();
  EXPECT_EQ(alive(), 0);
  torch::autograd::grad({loss}, {v}, {}, true);  // needs `a`, and not `product`
  EXPECT_EQ(seen.size(), 4U);
  EXPECT_EQ(alive(), 0);
  loss.backward({}, true);
  EXPECT_EQ(seen.size(), 6U);
  EXPECT_EQ(alive(), 0);
}

TEST(Checkpoint, SavedVariablesMayBeAskedTwice) {
  const auto counters = std::make_shared<CheckpointCounters>();
  const at::Tensor w = Parameter({4});
  struct Cube : torch::autograd::Function<Cube> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
      context->save_for_backward({x});
      return x * x * x;
    }
    static std::vector<at::Tensor> backward(torch::autograd::AutogradContext* context,
                                            const std::vector<at::Tensor>& gradients) {
      return {gradients[0] * 3 * context->get_saved_variables()[0] *
              context->get_saved_variables()[0]};
    }
  };
  Checkpoint(
      {.counters = counters}, [](const at::Tensor& x) { return Cube::apply(x.sin()); }, w)
      .sum()
      .backward();
  const at::Tensor mine = w.grad();
  w.mutable_grad() = at::Tensor();
  Cube::apply(w.sin()).sum().backward();
  EXPECT_TRUE(SameBits(mine, w.grad()));
}

TEST(Checkpoint, RecomputesOnAnotherThread) {
  const Model model(3);
  const auto train = [&](Mode mode) {
    model.ZeroGradients();
    at::manual_seed(5);
    at::Tensor loss;
    {
      const Autocast bf16(DType::kBFloat16);
      loss = Forward(model, mode);
    }
    std::thread([&] {
      loss.backward();
      EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    }).join();
    return model.Gradients();
  };
  const auto plain = train(Mode::kPlain), checkpointed = train(Mode::kCheckpointed);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(SameBits(plain[i], checkpointed[i]));
}

TEST(Checkpoint, SeveralThreadsAtOnce) {
  constexpr int kThreads = 4;
  std::vector<Outcome> plain(kThreads), checkpointed(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // The generator of the CPU is shared; each thread draws from its own.
      auto generator = at::make_generator<at::CPUGeneratorImpl>(7 + t);
      const at::Tensor w = at::linspace(-1, 1, 64).view({8, 8}).clone().set_requires_grad(true);
      const auto run = [&](Mode mode) {
        generator.set_current_seed(static_cast<std::uint64_t>(t));
        w.mutable_grad() = at::Tensor();
        at::Tensor x = at::ones({4, 8});
        const CheckpointOptions options{.preserve_random_state = true, .generators = {generator}};
        for (int i = 0; i < 20; ++i) {
          x = Call(
              mode, options,
              [&w, generator](const at::Tensor& in) {
                at::Tensor mask = at::empty_like(in).bernoulli_(0.5, generator);
                return at::tanh(in.mm(w)) * mask + in;
              },
              x);
        }
        x.sum().backward();
        return Outcome{x.detach(), {w.grad().clone()}, {}};
      };
      plain[static_cast<std::size_t>(t)] = run(Mode::kPlain);
      checkpointed[static_cast<std::size_t>(t)] = run(Mode::kCheckpointed);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < kThreads; ++t) ExpectSame(plain[t], checkpointed[t]);
}

TEST(Checkpoint, FiveThousandSegmentsDeep) {
  constexpr int kDepth = 5000;
  const at::Tensor w = Parameter({4});
  const auto chain = [&](Mode mode, bool capture) {
    w.mutable_grad() = at::Tensor();
    at::Tensor x = at::linspace(0, 1, 4);
    for (int i = 0; i < kDepth; ++i) {
      if (capture) {  // the function holds the graph of all segments before
        x = Call(mode, {}, [&w, x] { return (x * w).sin() + x; });
      } else {
        x = Call(mode, {}, [&w](const at::Tensor& in) { return (in * w).sin() + in; }, x);
      }
    }
    x.sum().backward();
    return w.grad();
  };
  const at::Tensor plain = chain(Mode::kPlain, false);
  EXPECT_TRUE(SameBits(plain, chain(Mode::kCheckpointed, false)));
  EXPECT_TRUE(SameBits(plain, chain(Mode::kCheckpointed, true)));
  // Graphs that no backward has released.
  at::Tensor x = w;
  for (int i = 0; i < kDepth; ++i) x = Checkpoint([x] { return x.sin(); });
  x = at::Tensor();
}

TEST(Checkpoint, RunningStatisticsCanTellTheSecondRun) {
  const at::Tensor mean = at::zeros({4}), variance = at::ones({4}), w = Parameter({4});
  const auto norm = [&](const at::Tensor& x) {
    const double momentum = IsRecomputing() ? 0.0 : 0.1;
    return at::batch_norm(x, w, {}, mean, variance, true, momentum, 1e-5, false);
  };
  const at::Tensor x = at::linspace(-3, 5, 12).view({3, 4});
  const at::Tensor y = Checkpoint(norm, x).square().sum();
  const at::Tensor once = mean.clone();
  EXPECT_FALSE(IsRecomputing());
  y.backward();
  EXPECT_TRUE(SameBits(mean, once));
}

TEST(Checkpoint, StopsEarlyUnlessTold) {
  const at::Tensor w = Parameter({4});
  for (const bool early_stop : {true, false}) {
    int ends = 0;
    const auto function = [&](const at::Tensor& x) {
      const at::Tensor y = (x * w).sin();
      ++ends;
      return y + 1;
    };
    const at::Tensor y = Checkpoint({.early_stop = early_stop}, function, at::ones({4}));
    y.sum().backward();
    EXPECT_EQ(ends, early_stop ? 1 : 2);
  }
}

TEST(Checkpoint, InputsAreSavedByThePolicyAround) {
  class Halves final : public SavedTensorPolicy {
   public:
    class Half final : public SavedTensor {
     public:
      explicit Half(const at::Tensor& tensor) : half_(tensor.to(at::kBFloat16)) {}
      at::Tensor Restore() override { return half_.to(at::kFloat); }

     private:
      at::Tensor half_;
    };
    std::unique_ptr<SavedTensor> Save(const at::Tensor& tensor) override {
      ++saved;
      return std::make_unique<Half>(tensor);
    }
    int saved = 0;
  };
  const auto policy = std::make_shared<Halves>();
  const SavedTensorScope scope(policy);
  const at::Tensor w = at::ones({4}).set_requires_grad(true);
  const at::Tensor y = Checkpoint([](const at::Tensor& x) { return x.sin().cos(); }, w);
  EXPECT_EQ(policy->saved, 1);
  y.sum().backward();
  EXPECT_TRUE(SameBits(w.grad(), -at::ones({4}).sin().sin() * at::ones({4}).cos()));
}

TEST(Checkpoint, TakesTextAndArrays) {
  const at::Tensor x = at::ones({3}).set_requires_grad(true);
  const int numbers[] = {1, 2};
  const auto run = [](const at::Tensor& in, const char* name, const int* powers) {
    return std::string_view(name) == "gelu" ? at::gelu(in).pow(powers[1]) : in;
  };
  Checkpoint(run, x, "gelu", numbers).sum().backward();
  const at::Tensor y = at::ones({3}).set_requires_grad(true);
  run(y, "gelu", numbers).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), y.grad()));
}

TEST(Checkpoint, CountsWithSparseTensorsToo) {
  const auto counters = std::make_shared<CheckpointCounters>();
  const at::Tensor sparse = at::eye(3).to_sparse();
  const at::Tensor x = at::ones({3, 3}).set_requires_grad(true);
  Checkpoint(
      {.counters = counters}, [&](const at::Tensor& in) { return at::mm(sparse, in.sin()); }, x)
      .sum()
      .backward();
  EXPECT_TRUE(at::allclose(x.grad(), at::ones({3, 3}).cos()));
  EXPECT_EQ(counters->recomputes, 1);
}

}  // namespace
}  // namespace ait
