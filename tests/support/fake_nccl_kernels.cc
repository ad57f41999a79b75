// SPDX-License-Identifier: Apache-2.0
#include "support/fake_nccl_kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <type_traits>
#include <utility>

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

/// The same collective of every rank.
void RunCollective(const std::vector<const Call*>& calls) {
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
      return;
    case Kind::kBroadcast:
      result.assign(inputs[root], inputs[root] + bytes);
      for (const Call* call : calls) std::memcpy(Out(*call), result.data(), bytes);
      return;
    case Kind::kAllGather:
      for (const std::byte* input : inputs) result.insert(result.end(), input, input + bytes);
      for (const Call* call : calls) std::memcpy(Out(*call), result.data(), result.size());
      return;
    case Kind::kReduceScatter: {
      result.resize(bytes * ranks);
      Reduce(inputs, result.data(), count * ranks, first.type, first.op);
      for (std::size_t r = 0; r < ranks; ++r) {
        std::memcpy(Out(*calls[r]), result.data() + r * bytes, bytes);
      }
      return;
    }
    default:
      return;
  }
}

}  // namespace

bool RunFakeCalls(const std::vector<std::optional<std::vector<Call>>>& lists) {
  const int size = static_cast<int>(lists.size());
  std::vector<std::vector<const Call*>> collectives(lists.size());
  std::map<std::pair<int, int>, std::vector<const Call*>> sends;
  std::map<std::pair<int, int>, std::vector<const Call*>> receives;
  for (int rank = 0; rank < size; ++rank) {
    for (const Call& call : *lists[static_cast<std::size_t>(rank)]) {
      if (call.kind == Kind::kSend) {
        sends[{rank, call.peer}].push_back(&call);
      } else if (call.kind == Kind::kReceive) {
        receives[{call.peer, rank}].push_back(&call);
      } else {
        collectives[static_cast<std::size_t>(rank)].push_back(&call);
      }
    }
  }
  for (const auto& list : collectives) {
    if (list.size() != collectives[0].size()) return false;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i]->kind != collectives[0][i]->kind || list[i]->peer != collectives[0][i]->peer) {
        return false;
      }
    }
  }
  if (sends.size() != receives.size()) return false;
  std::vector<std::vector<std::byte>> moved;
  for (const auto& [pair, list] : sends) {
    if (!receives.contains(pair) || receives[pair].size() != list.size()) return false;
    for (const Call* call : list) {
      const std::byte* from = In(*call);
      moved.emplace_back(from, from + call->count * SizeOfType(call->type));
    }
  }
  std::size_t next = 0;
  for (const auto& [pair, list] : sends) {
    for (std::size_t i = 0; i < list.size(); ++i, ++next) {
      const Call& to = *receives[pair][i];
      const std::size_t bytes = std::min(moved[next].size(), to.count * SizeOfType(to.type));
      if (bytes != 0) std::memcpy(Out(to), moved[next].data(), bytes);
    }
  }
  for (std::size_t i = 0; i < collectives[0].size(); ++i) {
    std::vector<const Call*> calls;
    for (const auto& list : collectives) calls.push_back(list[i]);
    RunCollective(calls);
  }
  return true;
}

}  // namespace ait::testing
