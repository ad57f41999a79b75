// SPDX-License-Identifier: Apache-2.0
// One optimizer step over 50.86 M fp32 parameters in 148 tensors, the shapes of a GPT of 12 blocks
// and width 592, with one and two threads:
//
//   update: AdamW alone, against libtorch's two: torch::optim::AdamW and the fused CPU kernel
//   whole:  norm, clip, AdamW and zeroing, against foreach clip + fused + foreach zero
//
// Competitors take turns in every round. The limit is a loop that moves the bytes of update and
// computes next to nothing; for whole, its time in proportion to the bytes.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ait/base/types.h"
#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/optim/adam.h"
#include "ait/optim/norm.h"
#include "ait/optim/torch_executor.h"
#include "optim/partition.h"
#include "support/report.h"

namespace {

using ait::benchmarks::Median;

constexpr double kRate = 1e-4;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.95;
constexpr double kEpsilon = 1e-8;
constexpr double kDecay = 0.1;
constexpr double kMaxNorm = 1.0;
constexpr float kGradient = 0.01f;
constexpr double kBytesOfUpdate = 28;  // a parameter: p, g, m, v read; p, m, v written
constexpr double kBytesOfWhole = 36;   // the same, g read once more for the norm and written

std::vector<std::vector<std::int64_t>> Shapes() {
  constexpr std::int64_t kWidth = 592;
  std::vector<std::vector<std::int64_t>> shapes;
  for (int block = 0; block < 12; ++block) {
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{3 * kWidth, kWidth},
                                                                    {3 * kWidth},
                                                                    {kWidth, kWidth},
                                                                    {kWidth},
                                                                    {4 * kWidth, kWidth},
                                                                    {4 * kWidth},
                                                                    {kWidth, 4 * kWidth},
                                                                    {kWidth},
                                                                    {kWidth},
                                                                    {kWidth},
                                                                    {kWidth},
                                                                    {kWidth}}) {
      shapes.push_back(shape);
    }
  }
  for (const auto& shape :
       std::vector<std::vector<std::int64_t>>{{256, kWidth}, {256, kWidth}, {kWidth}, {kWidth}}) {
    shapes.push_back(shape);
  }
  return shapes;
}

void Check(const ait::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench adamw: %s\n", status.ToString().c_str());
  std::exit(1);
}

// The bytes of AdamW with next to no arithmetic, on the widest vectors.
#ifdef __x86_64__
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
void MoveBytesOfAdamW(float* __restrict p, const float* __restrict g, float* __restrict m,
                      float* __restrict v, std::int64_t n) {
  constexpr int kAhead = 128;
  for (std::int64_t i = 0; i + 16 <= n; i += 16) {
    __builtin_prefetch(p + i + kAhead);
    __builtin_prefetch(g + i + kAhead);
    __builtin_prefetch(m + i + kAhead);
    __builtin_prefetch(v + i + kAhead);
#pragma omp simd
    for (int j = 0; j < 16; ++j) {
      const float x = g[i + j] * 1e-30f;
      p[i + j] += x;
      m[i + j] += x;
      v[i + j] += x;
    }
  }
}

class Ours {
 public:
  Ours() : executor_(ait::TorchExecutor()) {
    std::int64_t end = 0;
    for (const auto& shape : Shapes()) {
      ait::ParameterSegment parameter{.name = ait::StrCat("p", layout_.parameters.size()),
                                      .begin = ait::RoundUp(end, 64),
                                      .shape = shape};
      end = parameter.range().end;
      layout_.parameters.push_back(parameter);
    }
    layout_.owned = {{0, ait::RoundUp(end, 64)}};
    parameters_ = Floats();
    gradients_ = Floats();
    std::ranges::fill(parameters(), 0.02f);
    Refill();
    auto bound = ait::AdamW{
        {.learning_rate = kRate,
         .beta1 = kBeta1,
         .beta2 = kBeta2,
         .epsilon = kEpsilon,
         .weight_decay =
             kDecay}}.Bind(layout_, {.executor = executor_, .memory = memory_});
    Check(bound.status());
    bound_ = *std::move(bound);
  }

  void Update() { Step({}); }
  void Whole() {
    const ait::SumOfSquares sum = ait::ComputeSumOfSquares(gradients(), executor_);
    const ait::GradientNorm norm = ait::GlobalNorm(sum);
    if (!norm.finite) Check(ait::InternalError("the gradients are not finite"));
    Step({.gradient_scale = ait::ClipFactor(norm.value, kMaxNorm),
          .gradients_after = ait::GradientsAfter::kZero});
  }
  void Refill() { std::ranges::fill(gradients(), kGradient); }

  void MoveBytes() {
    auto state = bound_->State();  // one array each, from the first parameter's state on
    float* m = state[0].floats().data();
    float* v = state[1].floats().data();
    ait::internal::ForEachPart(executor_, layout_.owned[0], [&](ait::ElementRange part) {
      MoveBytesOfAdamW(parameters().data() + part.begin, gradients().data() + part.begin,
                       m + part.begin, v + part.begin, part.size());
    });
  }

 private:
  // A flat buffer as the engine has it.
  ait::HostBuffer Floats() {
    const auto size = static_cast<std::size_t>(layout_.owned[0].end);
    auto buffer = ait::HostBuffer::Create(memory_, size * sizeof(float));
    Check(buffer.status());
    return *std::move(buffer);
  }
  std::span<float> parameters() { return parameters_.As<float>(); }
  std::span<float> gradients() { return gradients_.As<float>(); }

  void Step(const ait::StepOptions& options) {
    Check(bound_->BeginStep(options));
    Check(bound_->Update(
        {.begin = 0, .parameters = ait::View(parameters()), .gradients = ait::View(gradients())}));
  }

  ait::Executor executor_;
  ait::ParameterLayout layout_;
  ait::MemoryHandle memory_ = ait::HeapResource::Create();
  ait::HostBuffer parameters_;
  ait::HostBuffer gradients_;
  std::unique_ptr<ait::BoundOptimizer> bound_;
};

class Torch {
 public:
  Torch() {
    for (const auto& shape : Shapes()) {
      parameters_.push_back(at::randn(shape).mul_(0.02).requires_grad_());
      parameters_.back().mutable_grad() = at::full(shape, kGradient);
      data_.push_back(parameters_.back().detach());
      gradients_.push_back(parameters_.back().grad());
      exp_avg_.push_back(at::zeros(shape));
      exp_avg_sq_.push_back(at::zeros(shape));
      steps_.push_back(at::zeros({}));
    }
    optimizer_ =
        std::make_unique<torch::optim::AdamW>(parameters_, torch::optim::AdamWOptions(kRate)
                                                               .betas({kBeta1, kBeta2})
                                                               .eps(kEpsilon)
                                                               .weight_decay(kDecay));
  }

  void Optim() { optimizer_->step(); }
  void Fused() {
    at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(data_, gradients_, exp_avg_, exp_avg_sq_, {}, steps_, kRate, kBeta1, kBeta2,
                      kDecay, kEpsilon, /*amsgrad=*/false, /*maximize=*/false);
  }
  void Whole() {  // as torch.nn.utils.clip_grad_norm_(foreach=True) does it
    const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients_)));
    at::_foreach_mul_(gradients_, at::clamp_max(kMaxNorm / (norm + 1e-6), 1.0));
    Fused();
    at::_foreach_zero_(gradients_);
  }
  void Refill() {
    for (at::Tensor& gradient : gradients_) gradient.fill_(kGradient);
  }

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> data_;
  std::vector<at::Tensor> gradients_;
  std::vector<at::Tensor> exp_avg_;
  std::vector<at::Tensor> exp_avg_sq_;
  std::vector<at::Tensor> steps_;
  std::unique_ptr<torch::optim::AdamW> optimizer_;
};

}  // namespace

int main(int argc, char** argv) {
  ait::benchmarks::Report report(argc, argv);
  const int rounds = std::stoi(report.Setting("rounds", "9"));
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  Torch torch;
  for (int threads : {1, 2}) {
    at::set_num_threads(threads);
    Ours ours;
    std::map<std::string, std::vector<double>> times;
    const auto measure = [&](const std::string& name, const std::function<void()>& call) {
      const auto start = std::chrono::steady_clock::now();
      call();
      times[name].push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
              .count());
    };
    for (int round = 0; round <= rounds; ++round) {
      measure("ours update", [&] { ours.Update(); });
      measure("torch fused", [&] { torch.Fused(); });
      measure("move bytes", [&] { ours.MoveBytes(); });
      measure("ours whole", [&] { ours.Whole(); });
      torch.Refill();
      measure("torch whole", [&] { torch.Whole(); });
      ours.Refill();
      torch.Refill();
      measure("torch optim", [&] { torch.Optim(); });
      ours.Refill();
      if (round == 0) times.clear();  // first touch of everything
    }
    std::printf("%d thread%s, %d rounds: min / median ms\n", threads, threads == 1 ? "" : "s",
                rounds);
    for (const auto& [name, values] : times) {
      std::printf("  %-12s %7.2f / %7.2f\n", name.c_str(), *std::ranges::min_element(values),
                  Median(values));
    }
    const std::string prefix = std::to_string(threads) + "t/";
    const double limit = Median(times["move bytes"]);
    const auto add = [&](const char* name, const char* row, const char* baseline, double limit_ms) {
      report.AddTime(prefix + name, {.ms = Median(times[row]),
                                     .baseline = baseline,
                                     .baseline_ms = Median(times[baseline]),
                                     .limit_ms = limit_ms});
    };
    add("update/torch-optim", "ours update", "torch optim", limit);
    add("update/torch-fused", "ours update", "torch fused", limit);
    add("whole/torch", "ours whole", "torch whole", limit * kBytesOfWhole / kBytesOfUpdate);
  }
  return report.Finish();
}
