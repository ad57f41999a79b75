// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "ait/comm/communicator.h"
#include "ait/parallel/compression.h"

namespace ait::inline v0 {
namespace internal {
namespace {

class BetweenHosts final : public GradientCompression {
 public:
  explicit BetweenHosts(BetweenHostsOptions options) : options_(std::move(options)) {}

  std::string Describe() const override {
    // Not what the inner one says now: the ranks of a host remember different buckets.
    return StrCat("between hosts: ", bound_as_, ", after ", step_, " steps");
  }

  Status Bind(const FlatLayout& layout, Rank rank, WorldSize size) override {
    if (options_.compression == nullptr || options_.host == nullptr || options_.across == nullptr) {
      return InvalidArgumentError("compression between hosts: ",
                                  options_.compression == nullptr ? "the compression"
                                  : options_.host == nullptr      ? "the communicator of the host"
                                                                  : "the communicator across hosts",
                                  " is null");
    }
    const int ranks = options_.host->size().value() * options_.across->size().value();
    if (ranks != size.value()) {
      return InvalidArgumentError("compression between hosts: rank ", rank, " of ", size,
                                  " is one of ", options_.host->size(),
                                  " ranks of its host and of ", options_.across->size(),
                                  " across hosts, which makes ", ranks,
                                  " ranks; every host needs the same number, and every number "
                                  "within a host a group");
    }
    step_ = 0;
    AIT_RETURN_IF_ERROR(
        options_.compression->Bind(layout, options_.across->rank(), options_.across->size()));
    bound_as_ = options_.compression->Describe();
    return OkStatus();
  }

  Status Reduce(const GradientBucket& bucket, Communicator&, const OperationOptions& options,
                CompressionCounters& counters) override {
    const Status status = ReduceInTurn(bucket, options, counters);
    if (!status.ok()) {  // nobody of the host waits in vain
      options_.host->Abort(status);
      options_.across->Abort(status);
    }
    return status;
  }

  void EndStep(StepEnd end) override {
    if (end == StepEnd::kUpdated) ++step_;
    options_.compression->EndStep(end);
  }

  CompressionState Save() const override {
    CompressionState state = options_.compression->Save();
    state.method = Place() + state.method;
    state.step = step_;
    return state;
  }

  StatusOr<std::string> Load(std::span<const CompressionState> states) override {
    const std::string method = options_.compression->Save().method;
    std::vector<CompressionState> own;
    for (const CompressionState& state : states) {
      if (state.method != Place() + method) continue;
      own.push_back(state);
      own.back().method = method;
    }
    std::string lost;
    if (own.empty() && !states.empty()) {
      const std::string& other = states[0].method;
      if (!other.starts_with(kPlace) || !other.ends_with(StrCat(":", method))) {
        return InvalidArgumentError("the state is of compression by \"", other,
                                    "\", the engine compresses by \"", Place(), method,
                                    "\"; use that method, or go on without the state");
      }
      lost =
          StrCat("the residuals of ", Place(), method, " begin at zero: the state is of ", other);
      own.push_back({.method = method,
                     .rank = options_.across->rank().value(),
                     .world_size = options_.across->size().value(),
                     .step = states[0].step});
    }
    AIT_ASSIGN_OR_RETURN(const std::string inner, options_.compression->Load(own));
    step_ = own.front().step;
    return lost.empty() ? inner : lost;
  }

 private:
  static constexpr std::string_view kPlace = "between-hosts:";

  // "between-hosts:0/2:": this rank's number in its host. Ranks of different numbers remember
  // different buckets.
  std::string Place() const {
    return StrCat(kPlace, options_.host->rank(), "/", options_.host->size(), ":");
  }

  Status ReduceInTurn(const GradientBucket& bucket, const OperationOptions& options,
                      CompressionCounters& counters) {
    Communicator& host = *options_.host;
    Communicator& across = *options_.across;
    const Rank sender(bucket.index % host.size().value());
    const bool sends = host.rank() == sender;
    counters.exact_sent_bytes = 0;
    if (host.size().value() > 1) {
      std::vector<std::int64_t> counts(static_cast<std::size_t>(host.size().value()), 0);
      counts[static_cast<std::size_t>(sender.value())] = bucket.values.count;
      const Buffer own = sends ? bucket.values : bucket.values.Slice(bucket.values.count, 0);
      AIT_RETURN_IF_ERROR(
          host.ReduceScatter(bucket.values, own, counts, ReduceOp::kSum, options).Wait());
      ++counters.collectives;
      counters.handed_bytes += bucket.values.bytes().value();
    }
    if (sends && across.size().value() > 1) {
      const std::int64_t hosts = across.size().value();
      counters.exact_sent_bytes = 2 * bucket.values.bytes().value() * (hosts - 1) / hosts;
      AIT_RETURN_IF_ERROR(options_.compression->Reduce(bucket, across, options, counters));
    }
    if (host.size().value() > 1) {
      AIT_RETURN_IF_ERROR(host.Broadcast(bucket.values, sender, options).Wait());
      ++counters.collectives;
      counters.handed_bytes += bucket.values.bytes().value();
    }
    return OkStatus();
  }

  BetweenHostsOptions options_;
  std::string bound_as_;
  std::int64_t step_ = 0;
};

}  // namespace
}  // namespace internal

std::shared_ptr<GradientCompression> CompressionBetweenHosts(BetweenHostsOptions options) {
  return std::make_shared<internal::BetweenHosts>(std::move(options));
}

}  // namespace ait::inline v0
