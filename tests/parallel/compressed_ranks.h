// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_PARALLEL_COMPRESSED_RANKS_H_
#define AIT_TESTS_PARALLEL_COMPRESSED_RANKS_H_

// Gradients through a compression without an engine or autograd: a world of threads, in which every
// rank has one flat buffer of parameters, and chosen gradients step by step.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ait/comm/thread_group.h"
#include "ait/parallel/compression.h"
#include "support/status_matchers.h"

namespace ait::testing {

using MakeCompression = std::function<std::shared_ptr<GradientCompression>()>;

/// A few parameters: two matrices, a vector, a scalar, one with gaps behind it.
inline std::vector<ParameterInfo> SomeParameters() {
  const auto make = [](std::string name, std::vector<std::int64_t> sizes) {
    ParameterInfo info{.name = std::move(name), .sizes = std::move(sizes)};
    std::int64_t stride = 1;
    info.strides.resize(info.sizes.size());
    for (std::size_t d = info.sizes.size(); d-- > 0;) {
      info.strides[d] = stride;
      stride *= info.sizes[d];
    }
    return info;
  };
  return {make("up.weight", {40, 60}), make("up.bias", {40}), make("scale", {}),
          make("odd", {1037}), make("filter", {24, 8, 3, 3})};
}

/// The gradient of one parameter, by name.
using Gradients = std::map<std::string, std::vector<float>>;

/// Deterministic values around zero, of very different sizes as those of gradients are.
inline Gradients RandomGradients(const std::vector<ParameterInfo>& parameters, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  Gradients gradients;
  for (const ParameterInfo& info : parameters) {
    std::vector<float>& values = gradients[info.name];
    for (std::int64_t i = 0; i < info.count(); ++i) {
      const double uniform = static_cast<double>(random()) / 0x80000000p0 - 1;
      values.push_back(static_cast<float>(uniform * uniform * uniform));
    }
  }
  return gradients;
}

/// One rank of such a world.
class CompressedRank {
 public:
  CompressedRank(std::shared_ptr<Communicator> communicator,
                 std::shared_ptr<GradientCompression> compression,
                 std::vector<ParameterInfo> parameters, Bytes bucket = KiB(8))
      : communicator_(std::move(communicator)),
        compression_(std::move(compression)),
        layout_(FlatLayout::Create(std::move(parameters), {.world_size = communicator_->size(),
                                                           .first_bucket = bucket,
                                                           .bucket_cap = bucket})
                    .value()),
        flat_(static_cast<std::size_t>(layout_.groups()[0].count)) {
    EXPECT_OK(compression_->Bind(layout_, communicator_->rank(), communicator_->size()));
  }

  /// The sums over ranks, as this rank got them. The step is left open.
  StatusOr<Gradients> Reduce(const Gradients& gradients) {
    counters = {};
    Visit([&](const std::string& name, std::span<float> values) {
      std::ranges::copy(gradients.at(name), values.begin());
    });
    for (std::size_t b = 0; b < layout_.buckets().size(); ++b) {
      const FlatBucket& bucket = layout_.buckets()[b];
      const GradientBucket given{.index = static_cast<int>(b),
                                 .begin = bucket.begin,
                                 .values = View(flat_).Slice(bucket.begin, bucket.count),
                                 .layout = &layout_};
      AIT_RETURN_IF_ERROR(compression_->Reduce(given, *communicator_, {}, counters));
    }
    Gradients sums;
    std::size_t nonzero = 0;
    Visit([&](const std::string& name, std::span<float> values) {
      sums[name].assign(values.begin(), values.end());
      for (const float value : values) nonzero += value != 0;
    });
    for (const float value : flat_) nonzero -= value != 0;
    EXPECT_EQ(nonzero, 0u) << "the gaps between parameters are not zero";
    return sums;
  }

  StatusOr<Gradients> Step(const Gradients& gradients) {
    auto sums = Reduce(gradients);
    compression_->EndStep(GradientCompression::StepEnd::kUpdated);
    return sums;
  }

  GradientCompression& compression() { return *compression_; }
  Communicator& communicator() { return *communicator_; }
  const FlatLayout& layout() const { return layout_; }
  int rank() const { return communicator_->rank().value(); }
  int size() const { return communicator_->size().value(); }

  CompressionCounters counters;  // of the last step

 private:
  void Visit(const std::function<void(const std::string&, std::span<float>)>& visit) {
    for (const FlatSlot& slot : layout_.groups()[0].slots) {
      visit(layout_.parameters()[static_cast<std::size_t>(slot.parameter)].name,
            std::span(flat_).subspan(static_cast<std::size_t>(slot.offset),
                                     static_cast<std::size_t>(slot.count)));
    }
  }

  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<GradientCompression> compression_;
  FlatLayout layout_;
  std::vector<float> flat_;
};

/// Plays a world of `ranks` threads, each with a compression of its own.
inline void RunCompressed(int ranks, const MakeCompression& make,
                          const std::function<void(CompressedRank&)>& rank_main,
                          Bytes bucket = KiB(8)) {
  auto group = MakeThreadGroup(WorldSize(ranks), {.timeout = std::chrono::seconds(30)});
  std::vector<std::thread> threads;
  for (auto& communicator : group) {
    threads.emplace_back([&, communicator] {
      CompressedRank rank(communicator, make(), SomeParameters(), bucket);
      rank_main(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// The exact sums, in rank order, in double.
inline std::map<std::string, std::vector<double>> ExactSums(const std::vector<Gradients>& ranks) {
  std::map<std::string, std::vector<double>> sums;
  for (const Gradients& gradients : ranks) {
    for (const auto& [name, values] : gradients) {
      auto& sum = sums[name];
      sum.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += double{values[i]};
    }
  }
  return sums;
}

}  // namespace ait::testing

#endif  // AIT_TESTS_PARALLEL_COMPRESSED_RANKS_H_
