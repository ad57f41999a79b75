// SPDX-License-Identifier: Apache-2.0
// What data parallelism adds to a training step: DataParallel beside libtorch's c10d::Reducer, both
// over Gloo with the same bucket sizes, two processes of one thread each on this host.
//
// The model is a stack of residual blocks (layers=6 width=512: 12.6 million parameters, 50 MB of
// gradients), the batch rows=128 vectors. Four ways to take a step alternate: without data
// parallelism in libtorch's idiom (fused AdamW, gradients set to none) and in ait's (an engine of
// one rank); with the Reducer; with DataParallel. The overhead is the step with minus the step
// without, for DataParallel minus the faster of the two.
#include <ATen/core/ivalue.h>
// Keep the order.
#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

#include "ait/comm/thread_group.h"
#include "ait/comm/world.h"
#include "ait/launch/launcher.h"
#include "ait/optim/adam.h"
#include "ait/parallel/data_parallel.h"
#include "ait/tensor/gloo.h"
#include "support/report.h"

namespace ait::benchmarks {
namespace {

constexpr std::int64_t kFirstBucket = 1 << 20;
constexpr std::int64_t kBucketCap = 25 << 20;

template <typename T>
T Must(StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}
void Must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

struct Size {
  int layers;
  std::int64_t width;
  std::int64_t rows;
};

class Model {
 public:
  explicit Model(const Size& size) : size_(size) {
    for (int layer = 0; layer < size.layers; ++layer) {
      Add({size.width}, 1);
      Add({size.width}, 0);
      Add({4 * size.width, size.width}, 0.02);
      Add({4 * size.width}, 0);
      Add({size.width, 4 * size.width}, 0.02);
      Add({size.width}, 0);
    }
  }

  at::Tensor Loss(const at::Tensor& input) const {
    at::Tensor x = input;
    for (std::size_t p = 0; p < parameters.size(); p += 6) {
      const at::Tensor y = at::layer_norm(x, {size_.width}, parameters[p], parameters[p + 1]);
      const at::Tensor h = at::gelu(at::linear(y, parameters[p + 2], parameters[p + 3]), "tanh");
      x = x.add(at::linear(h, parameters[p + 4], parameters[p + 5]));
    }
    return x.pow(2).mean();
  }

  NamedTensors Named() const {
    NamedTensors list;
    for (std::size_t p = 0; p < parameters.size(); ++p) list.Add(StrCat("p", p), parameters[p]);
    return list;
  }

  std::vector<at::Tensor> parameters;

 private:
  void Add(at::IntArrayRef sizes, double scale) {
    at::Tensor p = scale == 1 ? at::full(sizes, 1.0) : at::randn(sizes).mul(scale);
    parameters.push_back(p.set_requires_grad(true));
  }
  Size size_;
};

// libtorch's fused AdamW, as torch.optim.AdamW(fused=True) calls it.
class TorchAdamW {
 public:
  explicit TorchAdamW(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
    for (const at::Tensor& p : parameters) {
      exp_avg_.push_back(at::zeros_like(p.detach()));
      exp_avg_sq_.push_back(at::zeros_like(p.detach()));
      steps_.push_back(at::full({}, 0.0, at::TensorOptions(at::kFloat)));
    }
  }
  void Step() {
    const c10::NoGradGuard no_grad;
    std::vector<at::Tensor> gradients;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      gradients.push_back(parameters_[i].grad());
      steps_[i].add_(1);
    }
    at::_fused_adamw_(parameters_, gradients, exp_avg_, exp_avg_sq_, {}, steps_, 1e-4, 0.9, 0.999,
                      1e-2, 1e-8, /*amsgrad=*/false, /*maximize=*/false);
    for (const at::Tensor& p : parameters_) p.mutable_grad().reset();
  }

 private:
  std::vector<at::Tensor> parameters_, exp_avg_, exp_avg_sq_, steps_;
};

// One way to take a step.
using Way = std::function<void(const at::Tensor& input)>;

Way PlainTorch(const Size& size) {
  auto model = std::make_shared<Model>(size);
  auto optimizer = std::make_shared<TorchAdamW>(model->parameters);
  return [=](const at::Tensor& input) {
    torch::autograd::backward({model->Loss(input)}, {});
    optimizer->Step();
  };
}

Way WithReducer(const Size& size, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  auto model = std::make_shared<Model>(size);
  auto optimizer = std::make_shared<TorchAdamW>(model->parameters);
  const std::vector<bool> dense(model->parameters.size(), false);
  const auto [buckets, limits] =
      c10d::compute_bucket_assignment_by_size(model->parameters, {kFirstBucket, kBucketCap}, dense);
  auto reducer = std::make_shared<c10d::Reducer>(
      model->parameters, std::vector<std::vector<std::size_t>>{buckets.rbegin(), buckets.rend()},
      group, dense, kBucketCap, /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true,
      std::unordered_map<std::size_t, std::string>(), kFirstBucket,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      std::vector<std::int64_t>());
  return [=](const at::Tensor& input) {
    reducer->prepare_for_forward();
    reducer->rebuild_buckets();
    const at::Tensor loss = model->Loss(input);
    reducer->prepare_for_backward({loss});
    torch::autograd::backward({loss}, {});
    optimizer->Step();
  };
}

struct Counters {
  double exposed_ms = 0;
  double overlap_ms = 0;
};

Way WithDataParallel(const Size& size, std::shared_ptr<Communicator> communicator,
                     std::vector<Counters>* counters) {
  auto model = std::make_shared<Model>(size);
  std::shared_ptr<DataParallel> engine = Must(
      DataParallel::Create(std::move(communicator), model->Named(),
                           {.first_bucket = Bytes(kFirstBucket), .bucket_cap = Bytes(kBucketCap)}));
  Must(engine->SetOptimizer(AdamW{{.learning_rate = 1e-4}}));
  return [=](const at::Tensor& input) {
    Must(engine->BeginMicroStep(MicroStep::kLast));
    Must(engine->Backward(model->Loss(input)));
    const GradientSummary sum = Must(engine->FinishGradients({.count = 1}));
    Must(engine->Update({.gradient_scale = 1.0 / static_cast<double>(sum.count)}));
    const StepCounters& c = engine->counters();
    counters->push_back({Seconds(c.exposed) * 1e3, Seconds(c.overlap) * 1e3});
  };
}

c10::intrusive_ptr<c10d::Store> MakeStore(World& world) {
  c10d::TCPStoreOptions options;
  options.waitWorkers = false;
  std::vector<std::int64_t> port(1, 0);
  c10::intrusive_ptr<c10d::TCPStore> store;
  if (world.rank() == Rank(0)) {
    options.isServer = true;
    options.port = 0;
    store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    port[0] = store->getPort();
  }
  Must(world.communicator()->Broadcast(View(port), Rank(0)).Wait());
  if (store) return store;
  options.port = static_cast<std::uint16_t>(port[0]);
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

c10::intrusive_ptr<c10d::ProcessGroup> GlooGroup(World& world) {
  const c10::intrusive_ptr<c10d::Store> store = MakeStore(world);
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::minutes(5));
  options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  const int rank = world.rank().value();
  const int size = world.size().value();
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO,
                    c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return group;
}

// Milliseconds of one step, the slowest rank's.
double Measure(const Way& way, const at::Tensor& input, Communicator& communicator) {
  Must(communicator.Barrier().Wait());
  const Time begin = SystemClock().now();
  way(input);
  double ms = Seconds(SystemClock().now() - begin) * 1e3;
  std::vector<double> of_ranks(1, ms);
  Must(communicator.AllReduce(View(of_ranks), ReduceOp::kMax).Wait());
  return of_ranks[0];
}

int RunRank(int argc, char** argv) {
  Report report(argc, argv);
  const auto setting = [&](const char* name, const char* fallback) {
    return std::stoi(report.Setting(name, fallback));
  };
  const Size size{setting("layers", "6"), setting("width", "512"), setting("rows", "128")};
  const int rounds = setting("rounds", "25");
  at::set_num_threads(1);
  auto world = Must(World::FromEnvironment({.transport = Gloo()}));
  Communicator& all = *world->communicator();
  std::vector<Counters> alone_counters;
  std::vector<Counters> counters;
  const std::vector<Way> ways = {
      PlainTorch(size),
      WithDataParallel(size, MakeThreadGroup(WorldSize(1)).front(), &alone_counters),
      WithReducer(size, GlooGroup(*world)),
      WithDataParallel(size, world->communicator(), &counters),
  };
  const at::Tensor input = at::randn({size.rows, size.width});
  constexpr int kWarmUp = 4;
  std::vector<std::vector<double>> times(ways.size());
  for (int round = 0; round < kWarmUp + rounds; ++round) {
    for (std::size_t w = 0; w < ways.size(); ++w) {
      const double ms = Measure(ways[w], input, all);
      if (round >= kWarmUp) times[w].push_back(ms);
    }
  }
  if (world->rank() != Rank(0)) return 0;
  const double plain = Median(times[0]);
  const double alone = Median(times[1]);
  const double reducer = Median(times[2]);
  const double ours = Median(times[3]);
  std::vector<double> exposed;
  std::vector<double> overlap;
  for (std::size_t i = kWarmUp; i < counters.size(); ++i) {
    exposed.push_back(counters[i].exposed_ms);
    overlap.push_back(counters[i].overlap_ms);
  }
  report.AddOverhead("overhead/c10d-reducer", {.with_ms = times[3],
                                               .without_ms = times[plain < alone ? 0 : 1],
                                               .baseline = "c10d::Reducer minus plain libtorch",
                                               .baseline_with_ms = times[2],
                                               .baseline_without_ms = times[0]});
  report.AddTime("step/c10d-reducer",
                 {.ms = ours, .baseline = "step with c10d::Reducer", .baseline_ms = reducer});
  report.AddTime("one_rank/plain",
                 {.ms = alone, .baseline = "plain libtorch step", .baseline_ms = plain});
  std::printf("exposed communication %.2f ms, hidden behind backward %.2f ms\n", Median(exposed),
              Median(overlap));
  return report.Finish();
}

int Launch(int argc, char** argv) {
  LaunchOptions options{.world_size = WorldSize(2), .threads = 1};
  options.command = {"/proc/self/exe"};
  for (int i = 1; i < argc; ++i) options.command.emplace_back(argv[i]);
  options.command.emplace_back("role=rank");
  Launcher launcher = Must(Launcher::Create(std::move(options)));
  const LaunchResult result = Must(launcher.Run());
  if (!result.status.ok()) std::fprintf(stderr, "%s\n", result.status.ToString().c_str());
  return result.exit_code;
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) {
  const bool is_rank = std::string_view(argv[argc - 1]) == "role=rank";
  return is_rank ? ait::benchmarks::RunRank(argc, argv) : ait::benchmarks::Launch(argc, argv);
}
