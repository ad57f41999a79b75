// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "data/mix_internal.h"
#include "data/plan/roles_internal.h"
#include "data/plan/stage_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 62;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;

std::string NameOf(const std::vector<PlanSource>& sources, std::size_t number) {
  return StrCat("source ", number, " (", sources[number].name, ")");
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> Stage::Create(const PlanStage& options, std::int64_t end_epoch,
                                               const std::vector<PlanSource>& sources,
                                               const PoolOrder& order, Standings& standings) {
  PlanStage full = options;
  if (full.shares.empty()) full.shares.resize(sources.size());
  if (full.shares.size() != sources.size()) {
    return InvalidArgumentError("there are ", full.shares.size(), " shares for ", sources.size(),
                                " sources; give one for each, or none");
  }
  std::vector<Selection> selections;
  bool is_mixture = false;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    auto selection = Selection::Create(full.shares[s].subset, sources[s].count);
    if (!selection.ok()) return Annotate(selection.status(), NameOf(sources, s));
    selections.push_back(*std::move(selection));
    if (full.shares[s].weight < 0) {
      return InvalidArgumentError(NameOf(sources, s), " has weight ", full.shares[s].weight,
                                  ", at least 0 is needed");
    }
    is_mixture = is_mixture || full.shares[s].weight > 0;
  }
  auto stage = std::make_unique<Stage>();
  stage->first_epoch_ = full.first_epoch;
  AIT_RETURN_IF_ERROR(is_mixture ? stage->SetUpMixture(full, sources, order, selections)
                                 : stage->SetUpTogether(full, sources, order, selections));
  if (is_mixture) AIT_RETURN_IF_ERROR(stage->TakeOver(standings, end_epoch));
  return stage;
}

Status Stage::SetUpTogether(const PlanStage& options, const std::vector<PlanSource>& sources,
                            const PoolOrder& order, const std::vector<Selection>& selections) {
  std::vector<Segment> segments;
  digest_ = Fold(Fold(0, 1), static_cast<std::uint64_t>(first_epoch_));
  double blocks = 0;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const double repeat = options.shares[s].repeat;
    const double size = std::round(repeat * static_cast<double>(selections[s].size()));
    if (!(repeat >= 0) || !(size < static_cast<double>(kMostSamples - epoch_size_))) {
      return InvalidArgumentError(NameOf(sources, s), " is to come ", repeat,
                                  " times; 0 or more, and less than 2^62 samples, are needed");
    }
    if (size == 0) continue;
    segments.push_back({.source = static_cast<std::int32_t>(s),
                        .selection = selections[s],
                        .size = static_cast<std::int64_t>(size)});
    epoch_size_ += segments.back().size;
    const std::size_t of_source = std::max<std::size_t>(sources[s].block_begins.size(), 1);
    blocks += static_cast<double>(of_source) * (repeat + 1);
    digest_ = Fold(Fold(Fold(digest_, s), selections[s].digest()),
                   static_cast<std::uint64_t>(segments.back().size));
  }
  if (epoch_size_ == 0) return InvalidArgumentError("no source has a sample in an epoch");
  if (order.order == SampleOrder::kBlockShuffled && blocks > static_cast<double>(kMostBlocks)) {
    return InvalidArgumentError("an epoch has ", blocks, " blocks, at most ", kMostBlocks,
                                " are allowed; repeat small sources less, or make larger blocks");
  }
  members_.push_back({.pool = std::make_unique<Pool>(std::move(segments), sources, order),
                      .first_pass = first_epoch_});
  return OkStatus();
}

Status Stage::SetUpMixture(const PlanStage& options, const std::vector<PlanSource>& sources,
                           const PoolOrder& order, const std::vector<Selection>& selections) {
  std::vector<std::int64_t> weights;
  digest_ = Fold(Fold(Fold(0, 2), static_cast<std::uint64_t>(first_epoch_)),
                 static_cast<std::uint64_t>(options.mixture_end));
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const SourceShare& share = options.shares[s];
    if (share.repeat != 1) {
      return InvalidArgumentError(NameOf(sources, s), " is to come ", share.repeat,
                                  " times in a mixture, where weights alone decide; leave it at 1");
    }
    if (share.weight == 0) continue;
    weights.push_back(share.weight);
    PoolOrder own = order;
    own.seed = SeedOf(order.seed, SeedRole::kPool, static_cast<std::int64_t>(s));
    std::vector<Segment> segment = {{.source = static_cast<std::int32_t>(s),
                                     .selection = selections[s],
                                     .size = selections[s].size()}};
    members_.push_back({.pool = std::make_unique<Pool>(std::move(segment), sources, own)});
    digest_ = Fold(Fold(Fold(digest_, s), selections[s].digest()),
                   static_cast<std::uint64_t>(share.weight));
  }
  AIT_ASSIGN_OR_RETURN(pattern_, MixPattern::Create(std::move(weights)));
  AIT_RETURN_IF_ERROR(SetMixtureSize(options));
  digest_ = Fold(digest_, static_cast<std::uint64_t>(epoch_size_));
  if (!restarts_) return OkStatus();
  for (std::size_t m = 0; m < members_.size(); ++m) {
    members_[m].draws_per_epoch = pattern_->CountBefore(m, epoch_size_);
    if (members_[m].draws_per_epoch > 0) continue;
    const auto source = static_cast<std::size_t>(members_[m].pool->segments()[0].source);
    return InvalidArgumentError(NameOf(sources, source), " has no sample in an epoch of ",
                                epoch_size_, ": its weight ", options.shares[source].weight,
                                " is too small beside the others; use MixtureEnd::kSamples, which "
                                "keeps the ratio over the epochs");
  }
  return OkStatus();
}

Status Stage::SetMixtureSize(const PlanStage& options) {
  restarts_ = options.mixture_end != MixtureEnd::kSamples;
  if (!restarts_) {
    epoch_size_ = options.epoch_samples;
  } else if (options.mixture_end == MixtureEnd::kFirstExhausted) {
    epoch_size_ = std::numeric_limits<std::int64_t>::max();
    for (std::size_t m = 0; m < members_.size(); ++m) {
      epoch_size_ = std::min(epoch_size_, pattern_->PlaceOf(m, members_[m].pool->size()));
    }
  } else {
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const std::int64_t last = pattern_->PlaceOf(m, members_[m].pool->size() - 1);
      epoch_size_ = std::max(epoch_size_, std::min(last, kMostSamples) + 1);
    }
  }
  if (epoch_size_ >= 1 && epoch_size_ < kMostSamples) return OkStatus();
  return InvalidArgumentError("an epoch of the mixture has ", epoch_size_,
                              " samples, 1 to 2^62 are allowed");
}

// Members go on where a stage before left their source, if it had the same samples of it, and else
// begin a new pass.
Status Stage::TakeOver(Standings& standings, std::int64_t end_epoch) {
  const bool is_last = end_epoch == std::numeric_limits<std::int64_t>::max();
  if (!is_last && EpochsIn(end_epoch) > kMostSamples / epoch_size_) {
    return InvalidArgumentError("epochs ", first_epoch_, " to ", end_epoch - 1, " of ", epoch_size_,
                                " samples make more than 2^62");
  }
  for (std::size_t m = 0; m < members_.size(); ++m) {
    Member& member = members_[m];
    const Segment& segment = member.pool->segments()[0];
    Standing& standing = standings[segment.source];
    if (standing.selection == segment.selection.digest()) {
      member.first_pass = standing.passes;
      member.first_draw = standing.draws;
    } else {
      member.first_pass = standing.passes + (standing.draws > 0 ? 1 : 0);
    }
    if (is_last) continue;
    const std::int64_t draws = member.first_draw + DrawsBefore(m, end_epoch, 0);
    standing = {.selection = segment.selection.digest(),
                .passes = member.first_pass + draws / segment.size,
                .draws = draws % segment.size,
                .size = segment.size};
  }
  return OkStatus();
}

std::int64_t Stage::DrawsBefore(std::size_t member, std::int64_t epoch,
                                std::int64_t position) const {
  if (restarts_) {
    return EpochsIn(epoch) * members_[member].draws_per_epoch +
           pattern_->CountBefore(member, position);
  }
  return pattern_->CountBefore(member, EpochsIn(epoch) * epoch_size_ + position);
}

Stage::Draw Stage::DrawAt(std::int64_t epoch, std::int64_t position) const {
  if (!pattern_) return {0, epoch, position};
  const std::int64_t place = restarts_ ? position : EpochsIn(epoch) * epoch_size_ + position;
  const MixPattern::Turn turn = pattern_->At(place);
  const auto number = static_cast<std::size_t>(turn.source);
  const Member& member = members_[number];
  const std::int64_t draw =
      member.first_draw + turn.number + (restarts_ ? EpochsIn(epoch) * member.draws_per_epoch : 0);
  const std::int64_t size = member.pool->size();
  const std::int64_t pass = draw / size;
  return {number, member.first_pass + pass, draw - pass * size};
}

const Selection* Stage::SelectionOf(std::int32_t source) const {
  for (const Member& member : members_) {
    for (const Segment& segment : member.pool->segments()) {
      if (segment.source == source) return &segment.selection;
    }
  }
  return nullptr;
}

SourceItem Stage::At(std::int64_t epoch, std::int64_t position) const {
  const Draw draw = DrawAt(epoch, position);
  return members_[draw.member].pool->At(draw.pass, draw.position);
}

SourceItem Stage::At(std::int64_t epoch, std::int64_t position,
                     std::vector<Pool::Memo>& memos) const {
  if (memos.empty()) memos.resize(members_.size());
  const Draw draw = DrawAt(epoch, position);
  return members_[draw.member].pool->At(draw.pass, draw.position, memos[draw.member]);
}

std::vector<SourceProgress> Stage::Progress(const std::vector<PlanSource>& sources,
                                            std::int64_t epoch, std::int64_t position) const {
  std::vector<SourceProgress> progress;
  for (const PlanSource& source : sources) progress.push_back({.name = source.name, .taken = 0});
  for (std::size_t m = 0; m < members_.size(); ++m) {
    const Member& member = members_[m];
    for (const Segment& segment : member.pool->segments()) {
      SourceProgress& of = progress[static_cast<std::size_t>(segment.source)];
      of.size = segment.size;
      of.epoch = epoch;
      if (pattern_) {
        const std::int64_t draws = member.first_draw + DrawsBefore(m, epoch, position);
        of.epoch = member.first_pass + draws / segment.size;
        of.taken = draws % segment.size;
      } else {
        of.taken = member.pool->CountBefore(segment, epoch, position);
      }
    }
  }
  return progress;
}

void Stage::AppendBlocks(std::int64_t epoch, std::int64_t begin, std::int64_t end,
                         std::vector<PlannedBlock>& blocks) const {
  std::vector<Pool::BlockUse> uses;
  if (!pattern_) {
    members_[0].pool->AppendBlocks(epoch, begin, end, uses);
    for (const Pool::BlockUse& use : uses) {
      blocks.push_back({use.source, use.block, use.begin, use.end});
    }
    return;
  }
  for (std::size_t m = 0; m < members_.size(); ++m) {
    const Member& member = members_[m];
    const std::int64_t size = member.pool->size();
    const std::int64_t first = member.first_draw + DrawsBefore(m, epoch, begin);
    const std::int64_t last = member.first_draw + DrawsBefore(m, epoch, end);
    // Draws of the source that come before this epoch, and the position of a draw in it.
    const std::int64_t before = member.first_draw + DrawsBefore(m, epoch, 0);
    const std::int64_t skipped = restarts_
                                     ? member.first_draw + EpochsIn(epoch) * member.draws_per_epoch
                                     : member.first_draw;
    const std::int64_t origin = restarts_ ? 0 : EpochsIn(epoch) * epoch_size_;
    const auto position_of = [&](std::int64_t draw) {
      if (draw < before) return std::int64_t{0};
      return std::min(pattern_->PlaceOf(m, draw - skipped) - origin, epoch_size_);
    };
    for (std::int64_t draw = first; draw < last;) {
      const std::int64_t pass_begin = draw / size * size;
      const std::int64_t pass_end = std::min(pass_begin + size, last);
      uses.clear();
      member.pool->AppendBlocks(member.first_pass + draw / size, draw - pass_begin,
                                pass_end - pass_begin, uses);
      for (const Pool::BlockUse& use : uses) {
        blocks.push_back({use.source, use.block, position_of(pass_begin + use.begin),
                          std::min(position_of(pass_begin + use.end - 1) + 1, epoch_size_)});
      }
      draw = pass_end;
    }
  }
}

}  // namespace internal
}  // namespace ait::inline v0
