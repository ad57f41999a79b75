// SPDX-License-Identifier: Apache-2.0
#include "support/fake_nccl_kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ait/base/float16.h"
#include "support/fake_gpu_internal.h"

namespace ait::testing {
namespace {

using Call = FakeCall;
using Kind = FakeCall::Kind;

std::size_t SizeOfType(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

template <typename T>
T Combine(T a, T b, ncclRedOp_t op) {
  using Wide = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;
  switch (op) {
    case ncclMax:
      return static_cast<double>(static_cast<float>(b)) > static_cast<double>(static_cast<float>(a))
                 ? b
                 : a;
    case ncclMin:
      return static_cast<double>(static_cast<float>(b)) < static_cast<double>(static_cast<float>(a))
                 ? b
                 : a;
    case ncclProd:
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
      } else {
        return static_cast<T>(static_cast<float>(a) * static_cast<float>(b));
      }
    default:
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
      } else if constexpr (std::is_same_v<T, double>) {
        return a + b;
      } else {
        return static_cast<T>(static_cast<float>(a) + static_cast<float>(b));
      }
  }
}

template <typename T>
void ReduceAs(const std::vector<const std::byte*>& inputs, std::byte* output, std::size_t count,
              ncclRedOp_t op) {
  for (std::size_t i = 0; i < count; ++i) {
    T result;
    std::memcpy(&result, inputs.back() + i * sizeof(T), sizeof(T));
    for (std::size_t r = inputs.size() - 1; r-- > 0;) {
      T x;
      std::memcpy(&x, inputs[r] + i * sizeof(T), sizeof(T));
      result = Combine(result, x, op);
    }
    if constexpr (!std::is_integral_v<T>) {
      if (op == ncclAvg) {
        result = static_cast<T>(static_cast<float>(result) / static_cast<float>(inputs.size()));
      }
    }
    std::memcpy(output + i * sizeof(T), &result, sizeof(T));
  }
}

void Reduce(const std::vector<const std::byte*>& inputs, std::byte* output, std::size_t count,
            ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclInt8:
      return ReduceAs<std::int8_t>(inputs, output, count, op);
    case ncclUint8:
      return ReduceAs<std::uint8_t>(inputs, output, count, op);
    case ncclInt32:
      return ReduceAs<std::int32_t>(inputs, output, count, op);
    case ncclUint32:
      return ReduceAs<std::uint32_t>(inputs, output, count, op);
    case ncclInt64:
      return ReduceAs<std::int64_t>(inputs, output, count, op);
    case ncclUint64:
      return ReduceAs<std::uint64_t>(inputs, output, count, op);
    case ncclFloat16:
      return ReduceAs<Float16>(inputs, output, count, op);
    case ncclBfloat16:
      return ReduceAs<BFloat16>(inputs, output, count, op);
    case ncclFloat32:
      return ReduceAs<float>(inputs, output, count, op);
    case ncclFloat64:
      return ReduceAs<double>(inputs, output, count, op);
    default:
      return;
  }
}

const std::byte* In(const Call& call) {
  return static_cast<const std::byte*>(FakeReach(call.input));
}
std::byte* Out(const Call& call) { return static_cast<std::byte*>(FakeReach(call.output)); }

}  // namespace

bool RunFakeCollective(const std::vector<const Call*>& calls) {
  for (const Call* call : calls) {
    if (call->kind != calls[0]->kind || call->peer != calls[0]->peer) return false;
  }
  std::size_t count = calls[0]->count;
  for (const Call* call : calls) count = std::min(count, call->count);
  const Call& first = *calls[0];
  const std::size_t bytes = count * SizeOfType(first.type);
  const auto ranks = calls.size();
  std::vector<const std::byte*> inputs;
  for (const Call* call : calls) inputs.push_back(call->input != nullptr ? In(*call) : nullptr);
  const auto root = static_cast<std::size_t>(first.peer);
  std::vector<std::byte> result;
  switch (first.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
      result.resize(bytes);
      Reduce(inputs, result.data(), count, first.type, first.op);
      for (std::size_t r = 0; r < ranks; ++r) {
        if (first.kind == Kind::kReduce && r != root) continue;
        if (bytes != 0) std::memcpy(Out(*calls[r]), result.data(), bytes);
      }
      return true;
    case Kind::kBroadcast:
      result.assign(inputs[root], inputs[root] + bytes);
      for (const Call* call : calls) std::memcpy(Out(*call), result.data(), bytes);
      return true;
    case Kind::kAllGather:
      for (const std::byte* input : inputs) result.insert(result.end(), input, input + bytes);
      for (const Call* call : calls) std::memcpy(Out(*call), result.data(), result.size());
      return true;
    case Kind::kReduceScatter: {
      result.resize(bytes * ranks);
      Reduce(inputs, result.data(), count * ranks, first.type, first.op);
      for (std::size_t r = 0; r < ranks; ++r) {
        std::memcpy(Out(*calls[r]), result.data() + r * bytes, bytes);
      }
      return true;
    }
    default:
      return false;
  }
}

void RunFakeMessage(const FakeCall& send, const FakeCall& receive) {
  const std::size_t bytes =
      std::min(send.count * SizeOfType(send.type), receive.count * SizeOfType(receive.type));
  std::memcpy(Out(receive), In(send), bytes);
}

}  // namespace ait::testing
