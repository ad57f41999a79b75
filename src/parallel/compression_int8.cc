// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "parallel/compression_kernels_internal.h"
#include "parallel/compression_packed_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

// The packed elements are cut into pieces, a piece into one slice of whole blocks for each rank.
// A slice travels as its scales and then its codes. The owner of a slice gets it from all ranks,
// adds them up, and gives the sum, quantised again, to all.
class Int8 final : public PackedCompression {
 public:
  explicit Int8(Int8CompressionOptions options)
      : PackedCompression("int8", std::move(options.scope), options.error_feedback,
                          std::max<std::int64_t>(1, options.block)),
        block_(options.block) {}

 private:
  static constexpr std::size_t kSlots = 3;                       // pieces in flight
  static constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements, about

  struct Slot {
    std::vector<std::byte> sent, received, sums;
    Work to_owners, to_all;
    std::int64_t first = 0;   // block of the piece
    std::int64_t blocks = 0;  // of a slice
  };

  Status CheckOptions() const override {
    if (block_ >= 64 && block_ <= 65536 && block_ % 64 == 0) return OkStatus();
    return InvalidArgumentError("compression by int8: a block of ", block_,
                                " elements is not a multiple of 64 from 64 to 65536");
  }
  std::string OptionsText() const override {
    return StrCat("block ", block_, has_feedback() ? ", error feedback" : "");
  }

  Status BindMethod() override {
    std::int64_t largest = 0;
    for (const PackedBucket& bucket : buckets()) largest = std::max(largest, bucket.packed_count);
    const std::int64_t slice = SliceBlocks(std::min(largest / block_, PieceBlocks()));
    const auto bytes = static_cast<std::size_t>(SliceBytes(slice) * size().value());
    for (Slot& slot : slots_) {
      slot.sent.assign(bytes, std::byte{});
      slot.received.assign(bytes, std::byte{});
      slot.sums.assign(bytes, std::byte{});
    }
    sum_.assign(static_cast<std::size_t>(block_), 0.0f);
    lost_.assign(static_cast<std::size_t>(block_), 0.0f);
    return OkStatus();
  }

  // Whole slices, so that only the last piece reaches behind the end.
  std::int64_t PieceBlocks() const {
    return RoundUp(std::max<std::int64_t>(1, kPiece / block_), size().value());
  }
  // Of a piece of so many blocks.
  std::int64_t SliceBlocks(std::int64_t blocks) const {
    return (blocks + size().value() - 1) / size().value();
  }
  std::int64_t SliceBytes(std::int64_t blocks) const {
    return RoundUp(blocks * (static_cast<std::int64_t>(sizeof(float)) + block_), 16);
  }

  // Piece p is encoded in round p, summed by its owners in the next, decoded in the one after.
  Status Exchange(std::size_t, std::span<float> values, std::span<float> error,
                  Wire& wire) override {
    const std::int64_t blocks = static_cast<std::int64_t>(values.size()) / block_;
    const std::int64_t piece = PieceBlocks();
    const auto pieces = static_cast<std::size_t>((blocks + piece - 1) / piece);
    for (std::size_t round = 0; round < pieces + 2; ++round) {
      if (round < pieces) {
        Slot& slot = slots_[round % kSlots];
        slot.first = static_cast<std::int64_t>(round) * piece;
        slot.blocks = SliceBlocks(std::min(piece, blocks - slot.first));
        Encode(slot, values, error, wire);
        slot.to_owners = wire.AllToAll(Whole(slot.sent, slot), Whole(slot.received, slot));
      }
      if (round >= 1 && round <= pieces) {
        Slot& slot = slots_[(round - 1) % kSlots];
        AIT_RETURN_IF_ERROR(slot.to_owners.Wait());
        Sum(slot, error, wire.rank().value());
        slot.to_all = wire.AllGatherInPlace(Whole(slot.sums, slot));
      }
      if (round >= 2) {
        Slot& slot = slots_[(round - 2) % kSlots];
        AIT_RETURN_IF_ERROR(slot.to_all.Wait());
        Decode(slot, values);
      }
    }
    return OkStatus();
  }

  Buffer Whole(std::vector<std::byte>& bytes, const Slot& slot) const {
    return {bytes.data(), SliceBytes(slot.blocks) * size().value(), DType::kUInt8};
  }

  // Block `b` of the slice of `rank`.
  std::byte* ScaleOf(std::vector<std::byte>& bytes, const Slot& slot, int rank,
                     std::int64_t b) const {
    return bytes.data() + rank * SliceBytes(slot.blocks) +
           b * static_cast<std::int64_t>(sizeof(float));
  }
  std::span<std::int8_t> CodesOf(std::vector<std::byte>& bytes, const Slot& slot, int rank,
                                 std::int64_t b) const {
    std::byte* const codes = bytes.data() + rank * SliceBytes(slot.blocks) +
                             slot.blocks * static_cast<std::int64_t>(sizeof(float)) + b * block_;
    return {reinterpret_cast<std::int8_t*>(codes), static_cast<std::size_t>(block_)};
  }
  static float Get(const std::byte* scale) {
    float value;
    std::memcpy(&value, scale, sizeof value);
    return value;
  }
  static void Put(float value, std::byte* scale) { std::memcpy(scale, &value, sizeof value); }

  // The elements of block `b` of the slice of `rank`; empty behind the end.
  template <typename T>
  std::span<T> Elements(std::span<T> packed, const Slot& slot, int rank, std::int64_t b) const {
    const std::int64_t begin = (slot.first + rank * slot.blocks + b) * block_;
    const auto count = static_cast<std::int64_t>(packed.size());
    if (begin >= count) return {};
    return packed.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(block_));
  }

  void Encode(Slot& slot, std::span<float> values, std::span<float> error, Wire& wire) {
    for (int rank = 0; rank < size().value(); ++rank) {
      for (std::int64_t b = 0; b < slot.blocks; ++b) {
        const std::span<const float> block = Elements(values, slot, rank, b);
        const std::span<std::int8_t> codes = CodesOf(slot.sent, slot, rank, b);
        if (block.empty()) {
          Put(0, ScaleOf(slot.sent, slot, rank, b));
          std::ranges::fill(codes, std::int8_t{0});
          continue;
        }
        const std::span<float> lost =
            error.empty() ? std::span<float>(lost_) : Elements(error, slot, rank, b);
        Put(compression::Quantise(block, codes, lost), ScaleOf(slot.sent, slot, rank, b));
        if (error.empty()) wire.counters().error_squares += compression::Squares(lost);
      }
    }
  }

  void Sum(Slot& slot, std::span<float> error, int own) {
    for (std::int64_t b = 0; b < slot.blocks; ++b) {
      for (int rank = 0; rank < size().value(); ++rank) {
        const std::span<const std::int8_t> codes = CodesOf(slot.received, slot, rank, b);
        const float scale = Get(ScaleOf(slot.received, slot, rank, b));
        if (rank == 0) {
          compression::Dequantise(codes, scale, sum_);
        } else {
          compression::AddDequantised(codes, scale, sum_);
        }
      }
      Put(compression::Quantise(sum_, CodesOf(slot.sums, slot, own, b), lost_),
          ScaleOf(slot.sums, slot, own, b));
      // The owner owes the error of the sum, too.
      if (const std::span<float> owned = Elements(error, slot, own, b); !owned.empty()) {
        compression::AddTo(owned, lost_);
      }
    }
  }

  void Decode(Slot& slot, std::span<float> values) {
    for (int rank = 0; rank < size().value(); ++rank) {
      for (std::int64_t b = 0; b < slot.blocks; ++b) {
        const std::span<float> block = Elements(values, slot, rank, b);
        if (block.empty()) break;
        compression::Dequantise(CodesOf(slot.sums, slot, rank, b),
                                Get(ScaleOf(slot.sums, slot, rank, b)), block);
      }
    }
  }

  std::int64_t block_;
  std::array<Slot, kSlots> slots_;
  std::vector<float> sum_, lost_;  // of one block
};

}  // namespace
}  // namespace internal

std::shared_ptr<GradientCompression> Int8Compression(Int8CompressionOptions options) {
  return std::make_shared<internal::Int8>(std::move(options));
}

}  // namespace ait::inline v0
