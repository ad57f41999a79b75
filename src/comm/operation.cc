// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/operation.h"

#include <algorithm>

#include "ait/base/status.h"
#include "comm/operation_check.h"

namespace ait::inline v0 {
namespace {

/// FNV-1a over whole 64-bit words, each mixed by the finaliser of SplitMix64
/// (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
class Hash {
 public:
  void Add(std::uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    value_ = (value_ ^ word ^ (word >> 31)) * 0x100000001b3u;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

bool HasReduction(OperationKind kind) {
  return kind == OperationKind::kAllReduce || kind == OperationKind::kReduceScatter;
}

bool HasRoot(OperationKind kind) {
  return kind == OperationKind::kBroadcast || kind == OperationKind::kGather ||
         kind == OperationKind::kScatter;
}

/// "1024", or "[3, 0, 4]" if the parts differ; long lists are cut.
std::string DescribeCounts(const std::vector<std::int64_t>& counts) {
  if (counts.empty() || std::all_of(counts.begin(), counts.end(),
                                    [&](std::int64_t count) { return count == counts[0]; })) {
    return StrCat(counts.size(), " x ", counts.empty() ? 0 : counts[0]);
  }
  constexpr std::size_t kShown = 16;
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(counts.size(), kShown); ++i) {
    text += StrCat(i > 0 ? ", " : "", counts[i]);
  }
  return text + (counts.size() > kShown ? ", ...]" : "]");
}

}  // namespace

std::string_view Name(OperationKind kind) {
  switch (kind) {
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kAllReduce:
      return "all-reduce";
    case OperationKind::kReduceScatter:
      return "reduce-scatter";
    case OperationKind::kAllGather:
      return "all-gather";
    case OperationKind::kAllToAll:
      return "all-to-all";
    case OperationKind::kGather:
      return "gather";
    case OperationKind::kScatter:
      return "scatter";
    case OperationKind::kSend:
      return "send";
    case OperationKind::kReceive:
      return "receive";
    case OperationKind::kBarrier:
      return "barrier";
  }
  return "unknown operation";
}

std::string_view Name(ReduceOp reduce) {
  switch (reduce) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kProduct:
      return "product";
  }
  return "unknown reduction";
}

std::uint64_t Operation::Signature() const {
  Hash hash;
  const OperationKind common = kind == OperationKind::kReceive ? OperationKind::kSend : kind;
  hash.Add(static_cast<std::uint64_t>(common));
  hash.Add(HasReduction(kind) ? 1 + static_cast<std::uint64_t>(reduce) : 0);
  hash.Add(HasRoot(kind) ? 1 + static_cast<std::uint64_t>(peer.value()) : 0);
  hash.Add(kind == OperationKind::kBarrier ? 0 : 1 + static_cast<std::uint64_t>(dtype));
  hash.Add(sequence);
  if (internal::IsMessage(kind)) {
    hash.Add(tag);
    hash.Add(static_cast<std::uint64_t>(kind == OperationKind::kSend ? input.count : output.count));
  } else if (kind == OperationKind::kBroadcast || kind == OperationKind::kAllReduce) {
    hash.Add(static_cast<std::uint64_t>(output.count));
  } else if (kind != OperationKind::kAllToAll) {  // its counts differ from rank to rank
    for (const std::int64_t count : counts) hash.Add(static_cast<std::uint64_t>(count));
  }
  return hash.value();
}

std::string Operation::Describe() const {
  const std::string_view type =
      static_cast<int>(dtype) < kDTypeCount ? Name(dtype) : "elements of unknown type";
  std::string text(Name(kind));
  if (HasReduction(kind)) text += StrCat(" (", Name(reduce), ")");
  switch (kind) {
    case OperationKind::kBarrier:
      break;
    case OperationKind::kBroadcast:
    case OperationKind::kAllReduce:
      text += StrCat(" of ", output.count, " ", type);
      break;
    case OperationKind::kSend:
      text += StrCat(" of ", input.count, " ", type, " to rank ", peer, ", tag ", tag);
      break;
    case OperationKind::kReceive:
      text += StrCat(" of ", output.count, " ", type, " from rank ", peer, ", tag ", tag);
      break;
    case OperationKind::kAllToAll:
      text +=
          StrCat(" of ", DescribeCounts(counts), " to ", DescribeCounts(receive_counts), " ", type);
      break;
    default:
      text += StrCat(" of ", DescribeCounts(counts), " ", type);
  }
  if (HasRoot(kind)) text += StrCat(", root ", peer);
  if (!internal::IsMessage(kind)) text += StrCat(", sequence ", sequence);
  if (!label.empty()) text += StrCat(", ", label);
  return text;
}

}  // namespace ait::inline v0
