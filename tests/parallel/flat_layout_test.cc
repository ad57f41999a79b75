// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/flat_layout.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ParameterInfo Info(std::string name, std::vector<std::int64_t> sizes,
                   DType dtype = DType::kFloat32) {
  ParameterInfo info{.name = std::move(name), .dtype = dtype, .sizes = sizes, .strides = sizes};
  std::int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0; stride *= sizes[d]) info.strides[d] = stride;
  return info;
}

FlatLayout Make(std::vector<ParameterInfo> parameters, const FlatLayoutOptions& options = {}) {
  StatusOr<FlatLayout> layout = FlatLayout::Create(std::move(parameters), options);
  EXPECT_OK(layout);
  return *std::move(layout);
}

// Parameters of each bucket.
std::vector<std::size_t> Members(const FlatLayout& layout) {
  std::vector<std::size_t> members;
  for (const FlatBucket& bucket : layout.buckets()) members.push_back(bucket.parameters.size());
  return members;
}

TEST(FlatLayout, LiesInReverseOrderWithAlignedStarts) {
  const FlatLayout layout = Make({Info("a", {100}), Info("b", {10, 7}), Info("c", {})});
  ASSERT_EQ(layout.groups().size(), 1u);
  EXPECT_EQ(layout.slot(2)->offset, 0);
  EXPECT_EQ(layout.slot(2)->count, 1);  // 0-d: one element
  EXPECT_EQ(layout.slot(1)->offset, 64);
  EXPECT_EQ(layout.slot(0)->offset, 192);    // 64 + 70 rounded up
  EXPECT_EQ(layout.groups()[0].count, 384);  // 292 rounded up to 128
  EXPECT_THAT(layout.buckets()[0].parameters, ElementsAre(2, 1, 0));
}

TEST(FlatLayout, ClosesABucketBeforeTheParameterThatWouldExceedTheCap) {
  constexpr std::int64_t kCap = 1024;  // elements
  const FlatLayoutOptions options{.first_bucket = Bytes(4 * kCap), .bucket_cap = Bytes(4 * kCap)};
  for (const std::int64_t size : {kCap - 1, kCap}) {  // fits alone, with nothing else
    EXPECT_THAT(Members(Make({Info("x", {1}), Info("y", {size}), Info("z", {1})}, options)),
                ElementsAre(1, 1, 1))
        << size;
  }
  EXPECT_THAT(Members(Make({Info("y", {kCap - 64}), Info("z", {64})}, options)), ElementsAre(2));
  EXPECT_THAT(Members(Make({Info("y", {kCap - 63}), Info("z", {64})}, options)), ElementsAre(1, 1));
  for (const std::int64_t size : {kCap + 1, 3 * kCap}) {  // larger than the cap: alone, not split
    const FlatLayout layout =
        Make({Info("w", {1}), Info("x", {1}), Info("y", {size}), Info("z", {1})}, options);
    EXPECT_THAT(Members(layout), ElementsAre(1, 1, 2)) << size;
    EXPECT_EQ(layout.slot(2)->count, size);
    EXPECT_EQ(layout.buckets()[1].count, RoundUp(size, 128));
  }
}

TEST(FlatLayout, MakesTheFirstBucketSmall) {
  const FlatLayout layout =
      Make({Info("a", {200}), Info("b", {200}), Info("c", {200}), Info("d", {200})},
           {.first_bucket = Bytes(900), .bucket_cap = Bytes(100'000)});
  EXPECT_THAT(Members(layout), ElementsAre(1, 3));
}

TEST(FlatLayout, LaysTiedParametersOnceAndFrozenOnesNotAtAll) {
  ParameterInfo tied = Info("head", {8, 4});
  tied.tied_to = 0;
  ParameterInfo frozen = Info("frozen", {1000});
  frozen.role = ParameterInfo::Role::kFrozen;
  const FlatLayout layout = Make({Info("embedding", {8, 4}), frozen, Info("norm", {4}), tied});
  EXPECT_EQ(layout.slot(3), layout.slot(0));
  EXPECT_EQ(layout.slot(1), nullptr);
  EXPECT_EQ(layout.slot(2)->offset, 0);
  EXPECT_EQ(layout.slot(0)->offset, 64);  // where its first name stands: reached last by backward
  EXPECT_EQ(layout.groups()[0].count, 128);
}

TEST(FlatLayout, KeepsDtypesAndDevicesApart) {
  ParameterInfo elsewhere = Info("d", {5});
  elsewhere.device = "cuda:0";
  const FlatLayout layout =
      Make({Info("a", {3}), Info("b", {3}, DType::kBFloat16), Info("c", {3}), elsewhere});
  ASSERT_EQ(layout.groups().size(), 3u);
  EXPECT_EQ(layout.groups()[0].device, "cuda:0");
  EXPECT_EQ(layout.groups()[1].dtype, DType::kFloat32);
  EXPECT_EQ(layout.groups()[2].dtype, DType::kBFloat16);
  // In the order in which backward completes them: d, then b, then c and a.
  EXPECT_THAT(layout.buckets()[0].parameters, ElementsAre(3));
  EXPECT_THAT(layout.buckets()[1].parameters, ElementsAre(1));
  EXPECT_THAT(layout.buckets()[2].parameters, ElementsAre(2, 0));
  EXPECT_EQ(&layout.group_of(*layout.slot(1)), &layout.groups()[2]);
}

TEST(FlatLayout, HasRoomForNothing) {
  EXPECT_TRUE(Make({}).buckets().empty());
  const FlatLayout empty = Make({Info("a", {0, 5}), Info("b", {3, 0})});
  ASSERT_EQ(empty.buckets().size(), 1u);
  EXPECT_EQ(empty.buckets()[0].count, 0);
  EXPECT_EQ(empty.slot(0)->count, 0);
  const FlatLayout mixed = Make({Info("a", {5}), Info("b", {0}), Info("c", {5})});
  EXPECT_EQ(mixed.slot(1)->offset, 64);
  EXPECT_EQ(mixed.slot(0)->offset, 64);
}

TEST(FlatLayout, HashTellsLayoutsApart) {
  const std::vector<ParameterInfo> base = {Info("a", {4, 6}), Info("b", {6})};
  const std::uint64_t hash = Make(base).hash();
  EXPECT_EQ(Make(base).hash(), hash);
  std::set<std::uint64_t> hashes = {hash};
  const auto other = [&](auto change, const FlatLayoutOptions& options = {}) {
    std::vector<ParameterInfo> changed = base;
    change(changed);
    EXPECT_TRUE(hashes.insert(Make(changed, options).hash()).second);
  };
  other([](auto& p) { p[1].name = "c"; });
  other([](auto& p) { p[0].sizes = {6, 4}, p[0].strides = {4, 1}; });
  other([](auto& p) { p[0].strides = {1, 4}; });
  other([](auto& p) { p[0].dtype = DType::kFloat16; });
  other([](auto& p) { p[0].device = "cuda:0"; });
  other([](auto& p) { p[0].role = ParameterInfo::Role::kFrozen; });
  other([](auto& p) { std::swap(p[0], p[1]); });
  other([](auto& p) { p.pop_back(); });
  other([](auto&) {}, {.world_size = WorldSize(2)});
  other([](auto&) {}, {.first_bucket = Bytes(8)});
  std::vector<ParameterInfo> zero = base;
  std::vector<ParameterInfo> one = base;
  zero[0].device = "cuda:0";
  one[0].device = "cuda:1";
  EXPECT_EQ(Make(zero).hash(), Make(one).hash());
}

TEST(FlatLayout, RefusesWhatMakesNoSense) {
  const auto error = [](std::vector<ParameterInfo> parameters, FlatLayoutOptions options = {}) {
    return FlatLayout::Create(std::move(parameters), options).status();
  };
  EXPECT_THAT(error({Info("a", {1}), Info("a", {2})}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("same name a")));
  EXPECT_THAT(error({Info("", {1})}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("no name")));
  EXPECT_THAT(error({Info("a", {-1})}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("[-1]")));
  EXPECT_THAT(error({Info("a", {1})}, {.world_size = WorldSize(0)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("world size 0")));
  EXPECT_THAT(error({Info("a", {1})}, {.bucket_cap = Bytes(0)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("bucket_cap is 0")));
  ParameterInfo tied = Info("b", {2});
  tied.tied_to = 0;
  EXPECT_THAT(error({Info("a", {1}), tied}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not alike")));
  tied.tied_to = 1;
  EXPECT_THAT(error({Info("a", {2}), tied}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not an earlier owner")));
}

TEST(FlatLayout, WholeParametersBelongToOneRankAndTheLoadIsLevel) {
  std::vector<ParameterInfo> parameters;
  for (int i = 0; i < 40; ++i) parameters.push_back(Info(StrCat("p", i), {100 + i * 37 % 900}));
  for (const int ranks : {1, 2, 3, 7}) {
    for (const Bytes cap : {Bytes(256), Bytes(8192), MiB(1)}) {
      const FlatLayout layout = Make(parameters, {.world_size = WorldSize(ranks),
                                                  .slices = SliceRule::kWholeParameters,
                                                  .first_bucket = cap,
                                                  .bucket_cap = cap});
      std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks), 0);
      for (const FlatBucket& bucket : layout.buckets()) {
        std::int64_t begin = bucket.begin;
        for (int rank = 0; rank < ranks; ++rank) {
          const ElementRange slice = bucket.slice(Rank(rank));
          EXPECT_EQ(slice.begin, begin);
          EXPECT_EQ(slice.size() % 64, 0);
          begin = slice.end;
          loads[static_cast<std::size_t>(rank)] += slice.size();
          for (const int p : bucket.parameters) {
            const FlatSlot& slot = *layout.slot(p);
            const auto common = Intersection(slice, {slot.offset, slot.offset + slot.count});
            EXPECT_TRUE(common.size() == 0 || common.size() == slot.count) << p;
          }
        }
        EXPECT_EQ(begin, bucket.begin + bucket.count);
      }
      const auto [least, most] = std::ranges::minmax(loads);
      // A parameter and the padding of a bucket more or less.
      EXPECT_LE(most - least, 2 * 1024 + std::lcm(64 * ranks, 128)) << ranks << " ranks";
    }
  }
}

TEST(FlatLayout, ABucketHoldsParametersOfOneUnit) {
  std::vector<ParameterInfo> parameters = {Info("a", {10}), Info("b", {10}), Info("c", {10})};
  parameters[1].unit = 0;
  parameters[2].unit = 0;
  const FlatLayout layout = Make(parameters);
  ASSERT_EQ(layout.buckets().size(), 2u);
  EXPECT_EQ(layout.buckets()[0].unit, 0);
  EXPECT_THAT(layout.buckets()[0].parameters, ElementsAre(2, 1));
  EXPECT_EQ(layout.buckets()[1].unit, -1);
  parameters[2].unit = 1;
  EXPECT_NE(Make(parameters).hash(), layout.hash());
}

TEST(FlatLayout, RefusesSizesThatOverflow) {
  const auto info = [](std::string name, std::vector<std::int64_t> sizes) {
    ParameterInfo made{.name = std::move(name), .sizes = std::move(sizes)};
    made.strides.assign(made.sizes.size(), 1);
    return made;
  };
  const auto error = [](std::vector<ParameterInfo> parameters) {
    return FlatLayout::Create(std::move(parameters)).status();
  };
  constexpr std::int64_t kBig = std::int64_t{1} << 31;
  EXPECT_THAT(error({info("a", {kBig, kBig, 4})}),  // the product wraps to 0
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("parameter a of sizes [2147483648, 2147483648, 4] takes the model "
                                 "over 2^63 bytes")));
  EXPECT_THAT(error({info("a", {kBig, kBig / 2})}),  // elements fit, bytes do not
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("parameter a")));
  EXPECT_OK(error({info("a", {kBig, kBig / 4})}));
  EXPECT_THAT(error({info("a", {kBig, kBig / 4}), info("b", {kBig, kBig / 4})}),  // nor do both
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("parameter b")));
}

TEST(FlatLayout, DescribesItself) {
  const std::string text = Make({Info("first", {4}), Info("second", {4})}).Describe();
  EXPECT_THAT(text, HasSubstr("2 parameters, 1 flat buffers, 1 buckets, world size 1"));
  EXPECT_THAT(text, HasSubstr("bucket 0: float32 on cpu, elements 0 to 128, 2 parameters from "
                              "second"));
}

std::vector<ParameterInfo> RandomModel(std::mt19937& random) {
  const auto upto = [&](std::size_t n) { return static_cast<std::int64_t>(random() % (n + 1)); };
  std::vector<ParameterInfo> parameters;
  for (std::int64_t i = 0, n = upto(30); i < n; ++i) {
    constexpr DType kTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat64};
    std::vector<std::int64_t> sizes;
    for (std::int64_t d = upto(3); d > 0; --d) sizes.push_back(upto(12));
    parameters.push_back(Info(StrCat("p", i), sizes, kTypes[upto(2)]));
    ParameterInfo& info = parameters.back();
    if (upto(9) == 0) info.role = ParameterInfo::Role::kFrozen;
    const auto owner = static_cast<std::size_t>(upto(parameters.size() - 1));
    if (owner < parameters.size() - 1 && parameters[owner].tied_to < 0 && upto(4) == 0) {
      const std::string name = info.name;
      info = ParameterInfo(parameters[owner]);
      info.name = name;
      info.tied_to = static_cast<int>(owner);
    }
  }
  return parameters;
}

// Slots: ascending, disjoint, aligned, in reverse order, inside their bucket.
void ExpectSlotsInOrder(const FlatLayout& layout, int g) {
  const FlatGroup& group = layout.groups()[static_cast<std::size_t>(g)];
  std::int64_t end = 0;
  int last = static_cast<int>(layout.parameters().size());
  for (const FlatSlot& slot : group.slots) {
    EXPECT_GE(slot.offset, end);
    EXPECT_LT(slot.parameter, last);
    EXPECT_EQ(slot.offset % 64, 0);
    EXPECT_EQ(slot.offset * SizeOf(group.dtype) % 128, 0);
    EXPECT_EQ(layout.slot(slot.parameter), &slot);
    const FlatBucket& bucket = layout.buckets()[static_cast<std::size_t>(slot.bucket)];
    EXPECT_EQ(bucket.group, g);
    EXPECT_GE(slot.offset, bucket.begin);
    EXPECT_LE(slot.offset + slot.count, bucket.begin + bucket.count);
    end = slot.offset + slot.count;
    last = slot.parameter;
  }
}

// Buckets: cover the group without gaps, divide into aligned slices, respect the cap.
void ExpectBucketsCover(const FlatLayout& layout, int g) {
  const FlatGroup& group = layout.groups()[static_cast<std::size_t>(g)];
  const WorldSize ranks = layout.options().world_size;
  std::int64_t covered = 0;
  for (const FlatBucket& bucket : layout.buckets()) {
    if (bucket.group != g) continue;
    EXPECT_EQ(bucket.begin, covered);
    EXPECT_EQ(bucket.count % std::lcm(ranks.value(), 128), 0);
    std::int64_t begin = bucket.begin;
    for (int rank = 0; rank < ranks.value(); ++rank) {
      const ElementRange slice = bucket.slice(Rank(rank));
      EXPECT_EQ(slice.begin, begin);
      EXPECT_EQ(slice.size() % 64, 0);
      EXPECT_EQ(slice.size(), bucket.count / ranks.value());
      begin = slice.end;
    }
    EXPECT_EQ(begin, bucket.begin + bucket.count);
    std::int64_t used = 0;
    int filled = 0;
    for (const int p : bucket.parameters) {
      const FlatSlot& slot = *layout.slot(p);
      if (slot.count == 0) continue;
      used = std::max(used, slot.offset + slot.count - bucket.begin);
      ++filled;
    }
    const Bytes cap =
        bucket.begin == 0 ? layout.options().first_bucket : layout.options().bucket_cap;
    EXPECT_TRUE(filled <= 1 || used * SizeOf(group.dtype) <= cap.value());
    covered += bucket.count;
  }
  EXPECT_EQ(covered, group.count);
}

TEST(FlatLayout, KeepsItsRulesForAnyModel) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const std::vector<ParameterInfo> parameters = RandomModel(random);
    const FlatLayout layout =
        Make(parameters, {.world_size = WorldSize(1 + static_cast<int>(random() % 9)),
                          .first_bucket = Bytes(1 + random() % 2000),
                          .bucket_cap = Bytes(1 + random() % 8000)});
    SCOPED_TRACE(StrCat("round ", round, "\n", layout.Describe()));
    std::size_t laid = 0;
    for (std::size_t g = 0; g < layout.groups().size(); ++g) {
      ExpectSlotsInOrder(layout, static_cast<int>(g));
      ExpectBucketsCover(layout, static_cast<int>(g));
      laid += layout.groups()[g].slots.size();
    }
    const auto expected = std::ranges::count_if(parameters, [](const ParameterInfo& info) {
      return info.role == ParameterInfo::Role::kTrainable && info.tied_to < 0;
    });
    EXPECT_EQ(laid, static_cast<std::size_t>(expected));
  }
}

}  // namespace
}  // namespace ait
