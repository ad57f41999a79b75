// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_FLAT_LAYOUT_H_
#define AIT_PARALLEL_FLAT_LAYOUT_H_

// `FlatLayout`: where every trainable parameter lies in one flat buffer per (dtype, device), and
// how that buffer is cut into buckets that are reduced together.
//
// The layout is made once, is never changed, and is the same on all ranks: its hash says so. It is
// a plan, not memory, and needs no libtorch. The rules:
//
//   - reverse registration order, since backward reaches the last layers first;
//   - a parameter starts on a multiple of 64 elements and of 128 bytes, with zeros in between, and
//     is never split over two buckets;
//   - a bucket is closed before the parameter that would take it over its size; the first bucket of
//     a group is small, so that communication begins early; a parameter larger than the size has a
//     bucket of its own;
//   - a bucket ends on a multiple of lcm(64 x world size, 128) elements, so that it divides into
//     equal slices, one per rank, that start on multiples of 64 elements too; or, with
//     SliceRule::kWholeParameters, into slices of any length that end between parameters, balanced
//     over all buckets;
//   - a bucket holds parameters of one unit (ZeRO-3) only, or of none;
//   - tied parameters (the same memory under several names) are laid out once, where the first of
//     the names stands; frozen parameters are not laid out;
//   - elements lie in memory order of the parameter: strides are kept (channels-last stays so).
//
//   auto layout = FlatLayout::Create(parameters, {.world_size = WorldSize(2)});
//   for (const FlatBucket& bucket : layout->buckets()) Reduce(bucket.begin, bucket.count);
//
// **Thread-safety.** A value that is only read.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/optim/parameter_layout.h"

namespace ait::inline v0 {

/// What the layout must know of one parameter.
struct ParameterInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  std::string device = "cpu";
  std::vector<std::int64_t> sizes;  // empty: 0-d, one element
  std::vector<std::int64_t> strides;
  enum class Role { kTrainable, kFrozen } role = Role::kTrainable;
  /// Index of the first parameter with the same memory; -1 if there is none before this one.
  int tied_to = -1;
  /// Number of the unit that it is gathered with, or -1.
  int unit = -1;

  /// Product of the sizes, which must fit; `FlatLayout::Create` checks that.
  std::int64_t count() const;
  bool operator==(const ParameterInfo&) const = default;
};

/// "float32 [64, 3, 3] strides [9, 3, 1] on cpu, frozen": for messages.
std::string Describe(const ParameterInfo& info);

/// How a bucket is cut into the slices that ranks own.
enum class SliceRule : std::uint8_t { kEqual, kWholeParameters };

struct FlatLayoutOptions {
  WorldSize world_size{1};  // ranks that own slices
  SliceRule slices = SliceRule::kEqual;
  /// Size of the first bucket of a group, and of the others. At least 1 byte.
  Bytes first_bucket = MiB(1);
  Bytes bucket_cap = MiB(25);
};

/// One parameter in a flat buffer. Offsets and counts are elements.
struct FlatSlot {
  int parameter = 0;  // index into the list that the layout was made of
  int bucket = 0;     // index into buckets()
  std::int64_t offset = 0;
  std::int64_t count = 0;
};

/// A range of one flat buffer that is reduced in one operation.
struct FlatBucket {
  int group = 0;
  std::int64_t begin = 0;  // elements, within the buffer of the group
  /// A multiple of lcm(64 x world size, 128); 0 if all its parameters are empty.
  std::int64_t count = 0;
  std::vector<int> parameters;             // in order of their offsets
  int unit = -1;                           // of its parameters
  std::vector<std::int64_t> slice_counts;  // by rank; multiples of 64 that add up to `count`

  /// The elements that `rank` owns, counted as `begin`.
  ElementRange slice(Rank rank) const;
};

/// One flat buffer: all trainable parameters of one dtype on one device.
struct FlatGroup {
  DType dtype = DType::kFloat32;
  std::string device;
  std::int64_t count = 0;       // elements, with padding
  std::vector<FlatSlot> slots;  // in order of their offsets
};

class FlatLayout {
 public:
  /// Elements that a parameter or a slice starts on a multiple of.
  static constexpr std::int64_t kAlignment = 64;

  /// **Errors.** InvalidArgument: a name that is empty or occurs twice, a negative size, sizes
  /// whose bytes do not fit 63 bits, `tied_to` that is not an earlier owner of the same kind, a
  /// world size or bucket size below 1.
  static StatusOr<FlatLayout> Create(std::vector<ParameterInfo> parameters,
                                     const FlatLayoutOptions& options = {});

  const FlatLayoutOptions& options() const { return options_; }
  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  const std::vector<FlatGroup>& groups() const { return groups_; }
  /// In the order of reduction: by the last parameter of a bucket that backward is expected to
  /// reach.
  const std::vector<FlatBucket>& buckets() const { return buckets_; }

  /// The slot of a parameter or of the one that it is tied to; nullptr if frozen.
  const FlatSlot* slot(int parameter) const;
  /// The group of a bucket's slots.
  const FlatGroup& group_of(const FlatSlot& slot) const {
    return groups_[static_cast<std::size_t>(buckets_[static_cast<std::size_t>(slot.bucket)].group)];
  }

  /// 64-bit hash of everything above; equal on two ranks if and, but for chance, only if their
  /// layouts are. Of a device only the kind counts: cuda:0 and cuda:1 are the same.
  std::uint64_t hash() const { return hash_; }

  /// A table for people: groups, buckets, their sizes and first parameters.
  std::string Describe() const;

 private:
  FlatLayout() = default;

  FlatLayoutOptions options_;
  std::vector<ParameterInfo> parameters_;
  std::vector<FlatGroup> groups_;
  std::vector<FlatBucket> buckets_;
  std::vector<std::pair<int, int>> places_;  // of a parameter: group and slot, or -1
  std::uint64_t hash_ = 0;
};

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_FLAT_LAYOUT_H_
