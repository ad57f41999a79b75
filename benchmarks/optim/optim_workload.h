// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BENCHMARKS_OPTIM_OPTIM_WORKLOAD_H_
#define AIT_BENCHMARKS_OPTIM_OPTIM_WORKLOAD_H_

// 50.86 M parameters in 148 tensors, the shapes of a GPT of 12 blocks and width 592, and the flat
// buffers of an optimizer over them as an engine has them.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/base/types.h"
#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/optim/optimizer.h"

namespace ait::benchmarks {

struct Hyper {
  double rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double decay = 0.1;
};
inline constexpr Hyper kHyper;
inline constexpr double kMaxNorm = 1.0;
inline constexpr float kGradient = 0.01f;

inline void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench optim: %s\n", status.ToString().c_str());
  std::exit(1);
}

inline std::vector<std::vector<std::int64_t>> Shapes() {
  constexpr std::int64_t kWidth = 592;
  const std::vector<std::vector<std::int64_t>> block = {{3 * kWidth, kWidth},
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
                                                        {kWidth}};
  std::vector<std::vector<std::int64_t>> shapes;
  for (int i = 0; i < 12; ++i) shapes.insert(shapes.end(), block.begin(), block.end());
  for (const std::int64_t rows : {256, 256}) shapes.push_back({rows, kWidth});
  for (int i = 0; i < 2; ++i) shapes.push_back({kWidth});
  return shapes;
}

inline ParameterLayout LayoutOfShapes() {
  ParameterLayout layout;
  std::int64_t end = 0;
  for (const auto& shape : Shapes()) {
    layout.parameters.push_back(
        {.name = StrCat("p", layout.parameters.size()), .begin = RoundUp(end, 64), .shape = shape});
    end = layout.parameters.back().range().end;
  }
  layout.owned = {{0, RoundUp(end, 64)}};
  return layout;
}

/// Parameters and gradients of one dtype each.
class FlatBuffers {
 public:
  explicit FlatBuffers(DType dtype)
      : dtype_(dtype),
        count_(LayoutOfShapes().owned[0].end),
        parameters_(Bytes()),
        gradients_(Bytes()) {
    parameters_.Zero();
    Refill();
  }

  Buffer parameters() { return {parameters_.data(), count_, dtype_}; }
  Buffer gradients() { return {gradients_.data(), count_, dtype_}; }
  UpdateSlice slice() { return {.parameters = parameters(), .gradients = gradients()}; }
  void Refill() {
    if (dtype_ == DType::kFloat32) {
      for (float& gradient : gradients_.As<float>()) gradient = kGradient;
    } else {
      for (std::uint16_t& gradient : gradients_.As<std::uint16_t>()) gradient = 0x3c24;  // 0.01
    }
  }

 private:
  HostBuffer Bytes() {
    auto buffer = HostBuffer::Create(memory_, static_cast<std::size_t>(count_ * SizeOf(dtype_)));
    Check(buffer.status());
    return *std::move(buffer);
  }

  DType dtype_;
  std::int64_t count_;
  MemoryHandle memory_ = HeapResource::Create();
  HostBuffer parameters_;
  HostBuffer gradients_;
};

}  // namespace ait::benchmarks

#endif  // AIT_BENCHMARKS_OPTIM_OPTIM_WORKLOAD_H_
