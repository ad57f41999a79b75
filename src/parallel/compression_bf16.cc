// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "ait/base/float16.h"
#include "parallel/compression_kernels_internal.h"
#include "parallel/compression_packed_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

// The transport sums bf16 in fp32, in rank order, and rounds once: its contract is this method.
class Bf16 final : public PackedCompression {
 public:
  explicit Bf16(Bf16CompressionOptions options)
      : PackedCompression("bf16", std::move(options.scope), ErrorFeedback::kOff, 16) {}

 private:
  Status CheckOptions() const override { return OkStatus(); }
  std::string OptionsText() const override { return "sums in fp32"; }

  Status BindMethod() override {
    std::int64_t largest = 0;
    for (const PackedBucket& bucket : buckets()) largest = std::max(largest, bucket.packed_count);
    half_.assign(static_cast<std::size_t>(largest), BFloat16());
    return OkStatus();
  }

  // While one piece is on the wire, the next is rounded and the one before is widened.
  Status Exchange(std::size_t, std::span<float> values, std::span<float>, Wire& wire) override {
    constexpr std::size_t kPiece = std::size_t{1} << 20;  // elements; 2 MiB on the wire
    constexpr std::size_t kInFlight = 3;
    std::array<Work, kInFlight> works;
    const std::size_t pieces = (values.size() + kPiece - 1) / kPiece;
    const std::span<BFloat16> half(half_);
    for (std::size_t piece = 0; piece < pieces + kInFlight; ++piece) {
      if (piece >= kInFlight) {
        AIT_RETURN_IF_ERROR(works[piece % kInFlight].Wait());
        const std::size_t begin = (piece - kInFlight) * kPiece;
        if (begin < values.size()) {
          const std::size_t count = std::min(kPiece, values.size() - begin);
          compression::WidenBf16(half.subspan(begin, count), values.subspan(begin, count));
        }
      }
      works[piece % kInFlight] = Work();
      if (piece >= pieces) continue;
      const std::size_t begin = piece * kPiece;
      const std::size_t count = std::min(kPiece, values.size() - begin);
      wire.counters().error_squares +=
          compression::RoundToBf16(values.subspan(begin, count), half.subspan(begin, count));
      works[piece % kInFlight] = wire.AllReduceSum(View(half.subspan(begin, count)));
    }
    return OkStatus();
  }

  std::vector<BFloat16> half_;
};

}  // namespace
}  // namespace internal

std::shared_ptr<GradientCompression> Bf16Compression(Bf16CompressionOptions options) {
  return std::make_shared<internal::Bf16>(std::move(options));
}

}  // namespace ait::inline v0
