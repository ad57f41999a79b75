// SPDX-License-Identifier: Apache-2.0
#include <lz4frame.h>

#include "data/decode/compress_internal.h"

namespace ait::inline v0::internal {
namespace {

class Lz4Decompressor final : public Decompressor {
 public:
  Lz4Decompressor() {
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context_, LZ4F_VERSION)) != 0) {
      context_ = nullptr;
    }
  }
  ~Lz4Decompressor() override { LZ4F_freeDecompressionContext(context_); }
  Lz4Decompressor(const Lz4Decompressor&) = delete;
  Lz4Decompressor& operator=(const Lz4Decompressor&) = delete;

  bool is_usable() const { return context_ != nullptr; }
  bool is_complete() const override { return is_complete_; }

  StatusOr<DecompressStep> Run(std::span<const std::byte> input,
                               std::span<std::byte> output) override {
    if (is_damaged_) return DataLossError("damaged lz4 data");
    DecompressStep step;
    while (step.produced < output.size() && (step.consumed < input.size() || may_hold_output_)) {
      std::size_t in = input.size() - step.consumed;
      std::size_t out = output.size() - step.produced;
      const std::size_t result = LZ4F_decompress(context_, output.data() + step.produced, &out,
                                                 input.data() + step.consumed, &in, nullptr);
      if (LZ4F_isError(result) != 0) {
        is_damaged_ = true;
        return DataLossError("damaged lz4 data: ", LZ4F_getErrorName(result));
      }
      step.consumed += in;
      step.produced += out;
      is_complete_ = result == 0;
      may_hold_output_ = !is_complete_ && out > 0;
    }
    return step;
  }

 private:
  LZ4F_dctx* context_ = nullptr;
  bool is_complete_ = true;
  bool is_damaged_ = false;
  bool may_hold_output_ = false;
};

}  // namespace

bool HasLz4() { return true; }

StatusOr<std::unique_ptr<Decompressor>> NewLz4Decompressor() {
  auto made = std::make_unique<Lz4Decompressor>();
  if (!made->is_usable()) return ResourceExhaustedError("no memory to unpack lz4 data");
  return made;
}

}  // namespace ait::inline v0::internal
