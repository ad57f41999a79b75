// SPDX-License-Identifier: Apache-2.0
// One optimizer step over 50.86 M parameters in 148 tensors (optim_workload.h), with one and two
// threads. Competitors take turns in every round.
//
//   adamw/limit        the fp32 update against a loop that moves its bytes and computes nothing
//   adamw/torch-fused  against libtorch's fused kernel, or Python's if that is faster
//   whole/torch        norm, clip, update and zeroing, against foreach clip + fused + foreach zero
//   bf16_master/torch  bf16 gradients and parameters, fp32 masters, against torch's idiom: widen,
//                      fused update of the masters, narrow
//   bf16_master/limit  the limit in proportion to the bytes
//   adamw8bit, lion8bit   8-bit state against our own in fp32
//   clip/own           what the norm adds to a reduction, in percent of the update
//   adamw/deepspeed    with --peers: DeepSpeedCPUAdam

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ait/optim/adam.h"
#include "ait/optim/lion.h"
#include "ait/optim/norm.h"
#include "ait/optim/torch_executor.h"
#include "optim/partition.h"
#include "optim_peer.h"
#include "optim_workload.h"
#include "support/report.h"

namespace {

using ait::benchmarks::Check;
using ait::benchmarks::FlatBuffers;
using ait::benchmarks::kGradient;
using ait::benchmarks::kHyper;
using ait::benchmarks::kMaxNorm;
using ait::benchmarks::Median;

constexpr double kBytesOfUpdate = 28;   // a parameter: p, g, m, v read; p, m, v written
constexpr double kBytesOfWhole = 36;    // the same, g read once more for the norm and written
constexpr double kBytesOfMasters = 28;  // 2 g, 12 of master, m, v read; 12 and 2 p written

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

// What a reduction does to two ranks' gradients.
#ifdef __x86_64__
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
void Add(float* __restrict to, const float* __restrict from, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] = to[i] + from[i] * 1e-30f;
}

// One optimizer bound to the flat buffers.
class Ours {
 public:
  Ours(const ait::Optimizer& optimizer, FlatBuffers& buffers, ait::Executor executor)
      : buffers_(buffers) {
    auto bound = optimizer.Bind(
        ait::benchmarks::LayoutOfShapes(),
        {.executor = std::move(executor), .parameter_dtype = buffers.parameters().dtype});
    Check(bound.status());
    bound_ = *std::move(bound);
  }

  void Step(const ait::StepOptions& options = {}) {
    Check(bound_->BeginStep(options));
    Check(bound_->Update(buffers_.slice()));
  }
  float* state(int i) { return bound_->State()[static_cast<std::size_t>(i)].floats().data(); }

 private:
  FlatBuffers& buffers_;
  std::unique_ptr<ait::BoundOptimizer> bound_;
};

std::span<float> FloatsOf(const ait::Buffer& buffer) {
  return {static_cast<float*>(buffer.data), static_cast<std::size_t>(buffer.count)};
}

// AdamW of libtorch over fp32 tensors, and with bf16 parameters and gradients beside them.
class Torch {
 public:
  Torch() {
    for (const auto& shape : ait::benchmarks::Shapes()) {
      parameters_.push_back(at::randn(shape).mul_(0.02));
      gradients_.push_back(at::full(shape, kGradient));
      exp_avg_.push_back(at::zeros(shape));
      exp_avg_sq_.push_back(at::zeros(shape));
      steps_.push_back(at::zeros({}));
      halves_.push_back(parameters_.back().to(at::kBFloat16));
      half_gradients_.push_back(gradients_.back().to(at::kBFloat16));
    }
  }

  void Fused() {
    at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(parameters_, gradients_, exp_avg_, exp_avg_sq_, {}, steps_, kHyper.rate,
                      kHyper.beta1, kHyper.beta2, kHyper.decay, kHyper.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
  void Whole() {  // as torch.nn.utils.clip_grad_norm_(foreach=True) does it
    const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients_)));
    at::_foreach_mul_(gradients_, at::clamp_max(kMaxNorm / (norm + 1e-6), 1.0));
    Fused();
    at::_foreach_zero_(gradients_);
  }
  void Masters() {
    at::_foreach_copy_(gradients_, half_gradients_);
    Fused();
    at::_foreach_copy_(halves_, parameters_);
  }
  void Refill() {
    for (at::Tensor& gradient : gradients_) gradient.fill_(kGradient);
  }

 private:
  std::vector<at::Tensor> parameters_, gradients_, exp_avg_, exp_avg_sq_, steps_;
  std::vector<at::Tensor> halves_, half_gradients_;
};

class Benchmark {
 public:
  Benchmark(ait::benchmarks::Report& report, int rounds) : report_(report), rounds_(rounds) {
    if (!report.peers_python().empty()) peer_.emplace(report.peers_python());
  }

  void Run(int threads) {
    at::set_num_threads(threads);
    times_.clear();
    MeasureAll(threads);
    std::printf("%d thread%s, %d rounds: min / median ms\n", threads, threads == 1 ? "" : "s",
                rounds_);
    for (const auto& [name, values] : times_) {
      std::printf("  %-20s %7.2f / %7.2f\n", name.c_str(), *std::ranges::min_element(values),
                  Median(values));
    }
    Rows(std::to_string(threads) + "t/");
  }

 private:
  void Measure(const std::string& name, int round, const std::function<void()>& call) {
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    if (round > 0) times_[name].push_back(time.count());  // the first touches everything
  }

  void MeasureAll(int threads) {
    const ait::Executor executor = ait::TorchExecutor();
    FlatBuffers buffers(ait::DType::kFloat32);
    const ait::AdamWOptions adamw = {.learning_rate = kHyper.rate,
                                     .beta1 = kHyper.beta1,
                                     .beta2 = kHyper.beta2,
                                     .epsilon = kHyper.epsilon,
                                     .weight_decay = kHyper.decay};
    ait::AdamWOptions adamw_8bit = adamw;
    adamw_8bit.state = ait::StateFormat::kBlockwise8bit;
    Ours ours(ait::AdamW{adamw}, buffers, executor);
    Ours ours_8bit(ait::AdamW{adamw_8bit}, buffers, executor);
    Ours lion(ait::Lion{}, buffers, executor);
    Ours lion_8bit(ait::Lion{{.state = ait::StateFormat::kBlockwise8bit}}, buffers, executor);
    FlatBuffers half_buffers(ait::DType::kBFloat16);
    Ours masters(ait::AdamW{adamw}, half_buffers, executor);
    Torch torch;
    const ait::ElementRange all{0, buffers.parameters().count};
    float* const p = FloatsOf(buffers.parameters()).data();
    float* const g = FloatsOf(buffers.gradients()).data();
    float* const m = ours.state(0);
    float* const v = ours.state(1);
    const auto in_parts = [&](const auto& body) {
      ait::internal::ForEachPart(executor, all, body);
    };
    for (int round = 0; round <= rounds_; ++round) {
      Measure("adamw", round, [&] { ours.Step(); });
      Measure("torch fused", round, [&] { torch.Fused(); });
      Measure("limit", round, [&] {
        in_parts([&](ait::ElementRange r) {
          MoveBytesOfAdamW(p + r.begin, g + r.begin, m + r.begin, v + r.begin, r.size());
        });
      });
      Measure("bf16 masters", round, [&] { masters.Step(); });
      Measure("torch bf16 masters", round, [&] { torch.Masters(); });
      torch.Refill();
      Measure("adamw 8bit", round, [&] { ours_8bit.Step(); });
      Measure("lion", round, [&] { lion.Step(); });
      Measure("lion 8bit", round, [&] { lion_8bit.Step(); });
      for (const bool with_norm : {false, true}) {
        Measure(with_norm ? "reduce and norm" : "reduce", round, [&] {
          in_parts([&](ait::ElementRange r) {
            constexpr std::int64_t kPiece = 16384;
            ait::SumOfSquares sum;
            for (std::int64_t at = r.begin; at < r.end; at += kPiece) {
              const std::int64_t count = std::min(kPiece, r.end - at);
              Add(g + at, p + at, count);
              if (with_norm) {
                sum.Add(ait::ComputeSumOfSquares({g + at, static_cast<std::size_t>(count)}));
              }
            }
            if (!sum.finite()) Check(ait::InternalError("the gradients are not finite"));
          });
        });
      }
      Measure("whole", round, [&] {
        const ait::SumOfSquares sum =
            ait::ComputeSumOfSquares(FloatsOf(buffers.gradients()), executor);
        ours.Step({.gradient_scale = ait::ClipFactor(ait::GlobalNorm(sum).value, kMaxNorm),
                   .gradients_after = ait::GradientsAfter::kZero});
      });
      torch.Refill();
      Measure("torch whole", round, [&] { torch.Whole(); });
      buffers.Refill();
      torch.Refill();
      if (peer_) AddPeer(peer_->Round(threads), round);
    }
  }

  void AddPeer(const std::map<std::string, double>& row, int round) {
    if (round == 0) return;
    for (const auto& [name, ms] : row) times_["python " + name].push_back(ms);
  }

  double Time(const std::string& name) const { return Median(times_.at(name)); }
  // The faster of libtorch and, if it was asked for, Python's torch.
  double Torches(const std::string& ours, const std::string& python) const {
    return peer_ ? std::min(Time(ours), Time("python " + python)) : Time(ours);
  }

  void Rows(const std::string& prefix) {
    const double limit = Time("limit");
    const auto add = [&](const std::string& name, const std::string& row, const char* baseline,
                         double baseline_ms, std::optional<double> limit_ms = std::nullopt) {
      report_.AddTime(prefix + name, {.ms = Time(row),
                                      .baseline = baseline,
                                      .baseline_ms = baseline_ms,
                                      .limit_ms = limit_ms});
    };
    const double limit_of_masters = limit * kBytesOfMasters / kBytesOfUpdate;
    add("adamw/limit", "adamw", "in-place memory limit", limit, limit);
    add("adamw/torch-fused", "adamw", "torch fused", Torches("torch fused", "fused"), limit);
    if (peer_) {
      add("adamw/deepspeed", "adamw", "DeepSpeedCPUAdam", Time("python deepspeed"), limit);
    }
    add("whole/torch", "whole", "torch clip + fused + zero", Torches("torch whole", "whole"),
        limit * kBytesOfWhole / kBytesOfUpdate);
    add("bf16_master/torch", "bf16 masters", "torch widen + fused + narrow",
        Torches("torch bf16 masters", "bf16_master"), limit_of_masters);
    add("bf16_master/limit", "bf16 masters", "memory limit per byte", limit_of_masters,
        limit_of_masters);
    add("adamw8bit/own-adamw", "adamw 8bit", "adamw, fp32 state", Time("adamw"));
    add("lion8bit/own-lion", "lion 8bit", "lion, fp32 state", Time("lion"));
    const double norm = std::max(0.0, Time("reduce and norm") - Time("reduce"));
    report_.AddValue(prefix + "clip/own", 100 * norm / Time("adamw"), "% of update", "allowed", 10,
                     Time("adamw") / (10 * norm));
  }

  ait::benchmarks::Report& report_;
  int rounds_;
  std::optional<ait::benchmarks::OptimPeer> peer_;
  std::map<std::string, std::vector<double>> times_;
};

}  // namespace

int main(int argc, char** argv) {
  ait::benchmarks::Report report(argc, argv);
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  Benchmark benchmark(report, std::stoi(report.Setting("rounds", "9")));
  for (const int threads : {1, 2}) benchmark.Run(threads);
  return report.Finish();
}
