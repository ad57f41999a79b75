// SPDX-License-Identifier: Apache-2.0
#include <zstd.h>

#include "data/decode/compress_internal.h"

namespace ait::inline v0::internal {
namespace {

class ZstdDecompressor final : public Decompressor {
 public:
  ZstdDecompressor() : context_(ZSTD_createDCtx()) {}
  ~ZstdDecompressor() override { ZSTD_freeDCtx(context_); }
  ZstdDecompressor(const ZstdDecompressor&) = delete;
  ZstdDecompressor& operator=(const ZstdDecompressor&) = delete;

  bool is_usable() const { return context_ != nullptr; }
  bool is_complete() const override { return is_complete_; }

  StatusOr<DecompressStep> Run(std::span<const std::byte> input,
                               std::span<std::byte> output) override {
    if (is_damaged_) return DataLossError("damaged zstd data");
    ZSTD_inBuffer in = {input.data(), input.size(), 0};
    ZSTD_outBuffer out = {output.data(), output.size(), 0};
    // Also with no input left: the context may hold what did not fit into the output.
    while (out.pos < out.size && (in.pos < in.size || may_hold_output_)) {
      const std::size_t before = out.pos;
      const std::size_t result = ZSTD_decompressStream(context_, &out, &in);
      if (ZSTD_isError(result) != 0) {
        is_damaged_ = true;
        return DataLossError("damaged zstd data: ", ZSTD_getErrorName(result));
      }
      is_complete_ = result == 0;
      may_hold_output_ = !is_complete_ && (out.pos == out.size || out.pos != before);
    }
    return DecompressStep{.consumed = in.pos, .produced = out.pos};
  }

 private:
  ZSTD_DCtx* context_;
  bool is_complete_ = true;
  bool is_damaged_ = false;
  bool may_hold_output_ = false;
};

}  // namespace

bool HasZstd() { return true; }

StatusOr<std::unique_ptr<Decompressor>> NewZstdDecompressor() {
  auto made = std::make_unique<ZstdDecompressor>();
  if (!made->is_usable()) return ResourceExhaustedError("no memory to unpack zstd data");
  return made;
}

}  // namespace ait::inline v0::internal
