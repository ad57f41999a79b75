// SPDX-License-Identifier: Apache-2.0

// That every SIMD level of comm/reduce.h and comm/half.h computes the bits of the baseline, wherever
// the buffers lie, and that those are the bits of the plainest loop.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "ait/base/float16.h"
#include "comm/half.h"
#include "comm/reduce.h"

namespace ait {
namespace {

using internal::CopyBytes;
using internal::FromFloat;
using internal::ReduceRanks;
using internal::Stores;
using internal::ToFloat;

constexpr SimdLevel kLevels[] = {SimdLevel::kBaseline, SimdLevel::kAvx2, SimdLevel::kAvx512};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax, ReduceOp::kMin,
                             ReduceOp::kProduct};
constexpr int kRanks = 9;
constexpr std::int64_t kElements = 2600;  // of each rank's buffer
constexpr std::int64_t kGuard = 8;        // elements behind an output, which must keep their bytes
constexpr unsigned char kUntouched = 0xa5;

using ByteVector = std::vector<unsigned char>;

/// A floating-point NaN becomes that NaN whose bytes are all ones: which NaN it was is not promised.
template <typename T>
void ForgetPayload(unsigned char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  const auto number =
      static_cast<double>(static_cast<std::conditional_t<sizeof(T) == 2, float, T>>(value));
  if (number != number) std::memset(at, 0xff, sizeof(T));
}

void ForgetPayloads(ByteVector& bytes, DType dtype) {
  for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(SizeOf(dtype))) {
    if (dtype == DType::kFloat16) ForgetPayload<Float16>(&bytes[at]);
    if (dtype == DType::kBFloat16) ForgetPayload<BFloat16>(&bytes[at]);
    if (dtype == DType::kFloat32) ForgetPayload<float>(&bytes[at]);
    if (dtype == DType::kFloat64) ForgetPayload<double>(&bytes[at]);
  }
}

/// Random bits: floats of every exponent, infinities, NaNs and numbers below the normal ones. In a
/// part of the places all ranks are equal, or differ in the sign, or are of similar size, so that
/// sums cancel and round half-way.
std::vector<ByteVector> RandomRanks(DType dtype) {
  std::mt19937 random(static_cast<unsigned>(dtype) + 1);
  const auto size = static_cast<std::size_t>(SizeOf(dtype));
  std::vector<ByteVector> ranks(kRanks, ByteVector(kElements * size));
  for (std::size_t at = 0; at < kElements * size; at += size) {
    const unsigned kind = random() % 4;
    for (int rank = 0; rank < kRanks; ++rank) {
      unsigned char* element = &ranks[rank][at];
      for (std::size_t i = 0; i < size; ++i) {
        element[i] = dtype == DType::kBool ? random() % 2 : static_cast<unsigned char>(random());
      }
      if (dtype == DType::kBool || rank == 0 || kind == 0) continue;
      const unsigned char* first = &ranks[0][at];
      if (kind == 1) std::memcpy(element, first, size);
      if (kind == 2) std::memcpy(element + size / 2, first + size / 2, size - size / 2);
      if (kind >= 2)
        element[size - 1] = first[size - 1] ^ static_cast<unsigned char>(random() & 0x80);
    }
  }
  return ranks;
}

struct Shape {
  int inputs;
  int outputs;  // equal to `inputs` where in place
  bool in_place;
  Stores stores;
  std::int64_t offset;  // elements from an aligned address; that of buffer i is i more where ragged
  bool ragged;
  std::int64_t count;
};

std::string Name(const Shape& s) {
  return std::to_string(s.inputs) + " inputs, " + std::to_string(s.outputs) + " outputs" +
         (s.in_place ? " in place" : "") + (s.stores == Stores::kStreaming ? ", streaming" : "") +
         ", offset " + std::to_string(s.offset) + (s.ragged ? " ragged" : "") + ", count " +
         std::to_string(s.count);
}

/// Memory of which the first byte lies at an address divisible by 64.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t size) : bytes_(size + 64, kUntouched) {}
  unsigned char* data() {
    void* p = bytes_.data();
    std::size_t space = bytes_.size();
    return static_cast<unsigned char*>(std::align(64, bytes_.size() - 64, p, space));
  }

 private:
  ByteVector bytes_;
};

/// All outputs, one after the other, each with what lies before and behind it.
ByteVector ReduceInto(const std::vector<ByteVector>& ranks, DType dtype, ReduceOp op,
                      const Shape& s, SimdLevel level) {
  const auto size = static_cast<std::size_t>(SizeOf(dtype));
  const std::size_t room = (s.offset + kRanks + s.count + kGuard) * size;
  const auto offset = [&](int i) { return (s.offset + (s.ragged ? i : 0)) * size; };
  std::vector<AlignedBytes> memory;
  std::vector<const void*> in;
  std::vector<void*> out;
  memory.reserve(static_cast<std::size_t>(s.inputs + s.outputs));
  for (int i = 0; i < s.inputs; ++i) {
    unsigned char* at = memory.emplace_back(room).data() + offset(i);
    std::memcpy(at, ranks[static_cast<std::size_t>(i)].data(),
                static_cast<std::size_t>(s.count) * size);
    in.push_back(at);
    if (s.in_place) out.push_back(at);
  }
  for (int o = 0; !s.in_place && o < s.outputs; ++o)
    out.push_back(memory.emplace_back(room).data() + offset(o));
  ReduceRanks(in, out, s.count, dtype, op, s.stores, level);
  ByteVector result;
  for (std::size_t m = s.in_place ? 0 : in.size(); m < memory.size(); ++m)
    result.insert(result.end(), memory[m].data(), memory[m].data() + room);
  ForgetPayloads(result, dtype);
  return result;
}

class ReduceLevels : public ::testing::TestWithParam<DType> {};

TEST_P(ReduceLevels, HaveTheBitsOfTheBaselineForAnyShapeAndPlace) {
  const DType dtype = GetParam();
  const std::vector<ByteVector> ranks = RandomRanks(dtype);
  std::vector<Shape> shapes;
  for (int inputs = 1; inputs <= kRanks; ++inputs) {
    for (const std::int64_t count : {1, 3, 17, 64, 127, 515, 2500}) {
      for (const std::int64_t offset : {0, 1, 5}) {
        const bool ragged = offset == 5;
        shapes.push_back({inputs, inputs, true, Stores::kCached, offset, ragged, count});
        shapes.push_back({inputs, 1, false, Stores::kCached, offset, ragged, count});
        shapes.push_back({inputs, 1, false, Stores::kStreaming, offset, ragged, count});
        shapes.push_back({inputs, 3, false, Stores::kStreaming, offset, ragged, count});
      }
    }
  }
  for (const ReduceOp op : kOps) {
    if (op == ReduceOp::kAverage && !IsFloatingPoint(dtype)) continue;
    for (const Shape& shape : shapes) {
      const ByteVector expected = ReduceInto(ranks, dtype, op, shape, SimdLevel::kBaseline);
      for (const SimdLevel level : {SimdLevel::kAvx2, SimdLevel::kAvx512}) {
        ASSERT_EQ(ReduceInto(ranks, dtype, op, shape, level), expected)
            << Name(level) << ", " << Name(op) << ", " << Name(shape);
      }
    }
  }
}

/// Element by element in type A, rounded to T once: the rules of `ReduceOp`, as plain as can be.
template <typename T, typename A>
void ReduceScalar(const std::vector<ByteVector>& ranks, int inputs, ReduceOp op, std::size_t at,
                  unsigned char* result) {
  const auto value = [&](int rank) {
    T element;
    std::memcpy(&element, &ranks[static_cast<std::size_t>(rank)][at], sizeof(T));
    return static_cast<A>(element);
  };
  A a = value(0);
  for (int rank = 1; rank < inputs; ++rank) {
    const A b = value(rank);
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) a = static_cast<A>(a + b);
    if (op == ReduceOp::kProduct) a = static_cast<A>(a * b);
    if (op == ReduceOp::kMax && (b > a || b != b)) a = b;
    if (op == ReduceOp::kMin && (b < a || b != b)) a = b;
  }
  if (op == ReduceOp::kAverage) a = static_cast<A>(a / static_cast<A>(inputs));
  const T rounded = static_cast<T>(a);
  std::memcpy(result, &rounded, sizeof(T));
}

ByteVector ReduceScalar(const std::vector<ByteVector>& ranks, int inputs, DType dtype,
                        ReduceOp op) {
  ByteVector result(ranks[0].size());
  for (std::size_t at = 0; at < result.size(); at += static_cast<std::size_t>(SizeOf(dtype))) {
    const auto reduce = [&]<typename T, typename A>(T, A) {
      if (kDTypeOf<T> == dtype) ReduceScalar<T, A>(ranks, inputs, op, at, &result[at]);
    };
    reduce(Float16(), float());
    reduce(BFloat16(), float());
    reduce(float(), float());
    reduce(double(), double());
    if (!IsFloatingPoint(dtype)) {  // sums and products in 64 bits, which wrap around when cut
      using U = std::uint64_t;
      const bool ordered = op == ReduceOp::kMax || op == ReduceOp::kMin;
      const auto wide = [&]<typename T>(T) { ordered ? reduce(T(), T()) : reduce(T(), U()); };
      wide(std::uint8_t());
      wide(std::int8_t());
      wide(std::int16_t());
      wide(std::int32_t());
      wide(std::int64_t());
      wide(std::uint16_t());
      wide(std::uint32_t());
      if (dtype == DType::kBool) {
        const bool is_or = op == ReduceOp::kSum || op == ReduceOp::kMax;
        ReduceScalar<std::uint8_t, std::uint8_t>(
            ranks, inputs, is_or ? ReduceOp::kMax : ReduceOp::kMin, at, &result[at]);
      }
    }
  }
  ForgetPayloads(result, dtype);
  return result;
}

TEST_P(ReduceLevels, HaveTheBitsOfOneElementAtATime) {
  const DType dtype = GetParam();
  const std::vector<ByteVector> ranks = RandomRanks(dtype);
  for (const ReduceOp op : kOps) {
    if (op == ReduceOp::kAverage && !IsFloatingPoint(dtype)) continue;
    for (int inputs = 1; inputs <= kRanks; ++inputs) {
      const ByteVector expected = ReduceScalar(ranks, inputs, dtype, op);
      std::vector<const void*> in;
      for (int i = 0; i < inputs; ++i) in.push_back(ranks[static_cast<std::size_t>(i)].data());
      for (const SimdLevel level : kLevels) {
        ByteVector whole(expected.size());
        void* out[] = {whole.data()};
        ReduceRanks(in, out, kElements, dtype, op, Stores::kCached, level);
        ForgetPayloads(whole, dtype);
        ASSERT_EQ(whole, expected) << Name(level) << ", " << Name(op) << " of " << inputs;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ReduceLevels,
                         ::testing::Values(DType::kUInt8, DType::kInt8, DType::kInt16,
                                           DType::kInt32, DType::kInt64, DType::kFloat16,
                                           DType::kBFloat16, DType::kFloat32, DType::kFloat64,
                                           DType::kBool, DType::kUInt16, DType::kUInt32),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

TEST(CopyBytes, CopiesWhatItShallAndNothingElse) {
  ByteVector from(5000);
  std::mt19937 random(1);
  for (auto& byte : from) byte = static_cast<unsigned char>(random());
  for (const SimdLevel level : kLevels) {
    for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
      for (const std::size_t bytes : {0, 1, 15, 63, 64, 100, 255, 256, 1000, 4096}) {
        for (const std::size_t shift : {0, 1, 31, 63}) {
          ByteVector to(from.size(), kUntouched);
          CopyBytes(to.data() + shift, from.data() + 2 * shift, bytes, stores, level);
          ByteVector expected(from.size(), kUntouched);
          std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(2 * shift), bytes,
                      expected.begin() + static_cast<std::ptrdiff_t>(shift));
          ASSERT_EQ(to, expected) << Name(level) << ", " << bytes << " bytes, shift " << shift;
        }
      }
    }
  }
}

/// Every half to float, and floats of every exponent and half-way between two halves back.
template <typename Half>
void CheckConversions(SimdLevel level) {
  std::vector<Half> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> floats(halves.size());
  ToFloat(halves.data(), floats.data(), std::ssize(floats), level);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const auto value = static_cast<float>(halves[i]);
    ASSERT_TRUE(value != value ? floats[i] != floats[i]
                               : std::memcmp(&floats[i], &value, sizeof(float)) == 0)
        << Name(level) << ", bits " << i;
  }
  std::vector<float> all;
  for (std::uint64_t bits = 0; bits <= 0xffffffff; bits += 0x0fff) {  // half-way ones among them
    const auto u = static_cast<std::uint32_t>(bits);
    for (const std::uint32_t near : {u, (u & ~0x1fffu) | 0x1000u, (u & ~0xffffu) | 0x8000u}) {
      float value;
      std::memcpy(&value, &near, sizeof(value));
      all.push_back(value);
    }
  }
  std::vector<Half> back(all.size());
  FromFloat(all.data(), back.data(), std::ssize(all), level);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto expected = static_cast<Half>(all[i]);
    if (all[i] != all[i]) {
      const auto value = static_cast<float>(back[i]);
      ASSERT_TRUE(value != value) << Name(level) << ", " << i;
    } else {
      ASSERT_EQ(back[i].bits, expected.bits) << Name(level) << ", " << all[i];
    }
  }
}

TEST(Conversions, AreThoseOfTheScalarAtEveryLevel) {
  for (const SimdLevel level : kLevels) {
    CheckConversions<Float16>(level);
    CheckConversions<BFloat16>(level);
  }
}

}  // namespace
}  // namespace ait
