// SPDX-License-Identifier: Apache-2.0
#include "data/plan/pool_internal.h"

#include <algorithm>
#include <utility>

#include "data/plan/roles_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

// The first sample of block `block` of a source, or its count.
std::int64_t BlockBegin(const PlanSource& source, std::int64_t block) {
  const auto b = static_cast<std::size_t>(block);
  if (b == 0) return 0;
  return b < source.block_begins.size() ? source.block_begins[b] : source.count;
}

std::int64_t BlockCount(const PlanSource& source) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(source.block_begins.size()));
}

std::int64_t BlockOf(const PlanSource& source, std::int64_t id) {
  const auto& begins = source.block_begins;
  if (begins.empty()) return 0;
  return std::upper_bound(begins.begin(), begins.end(), id) - begins.begin() - 1;
}

}  // namespace

Pool::Pool(std::vector<Segment> segments, const std::vector<PlanSource>& sources, PoolOrder order)
    : segments_(std::move(segments)), sources_(sources), order_(order) {
  for (Segment& segment : segments_) {
    segment.begin = size_;
    segment.whole = segment.size / segment.selection.size() * segment.selection.size();
    size_ += segment.size;
  }
  if (order_.order == SampleOrder::kBlockShuffled) MakeChunks();
}

// A chunk is a block of a source as far as it is selected, once for each whole copy. What is left
// is cut into pieces that are as long as these are on average.
void Pool::MakeChunks() {
  for (const Segment& segment : segments_) {
    const PlanSource& source = sources_[static_cast<std::size_t>(segment.source)];
    const std::int64_t selected = segment.selection.size();
    std::vector<std::int64_t> begins;
    for (std::int64_t b = 0; b < BlockCount(source); ++b) {
      const std::int64_t begin = segment.selection.CountBelow(BlockBegin(source, b));
      if (begin < segment.selection.CountBelow(BlockBegin(source, b + 1))) begins.push_back(begin);
    }
    for (std::int64_t copy = 0; copy < segment.whole; copy += selected) {
      for (const std::int64_t begin : begins) {
        chunk_begins_.push_back(segment.begin + copy + begin);
      }
    }
    const auto blocks = static_cast<std::int64_t>(begins.size());
    const std::int64_t piece = (selected - 1) / blocks + 1;
    for (std::int64_t begin = segment.whole; begin < segment.size; begin += piece) {
      chunk_begins_.push_back(segment.begin + begin);
    }
  }
  chunk_begins_.push_back(size_);
}

std::shared_ptr<const BlockOrder> Pool::Blocks(std::int64_t pass) const {
  return recent_.Get(
      pass, [&] { return BlockOrder(chunk_begins_, order_.window_blocks, order_.seed, pass); });
}

std::size_t Pool::SegmentOf(std::int64_t item) const {
  if (segments_.size() == 1) return 0;
  const auto after =
      std::upper_bound(segments_.begin(), segments_.end(), item,
                       [](std::int64_t value, const Segment& s) { return value < s.begin; });
  return static_cast<std::size_t>(after - segments_.begin()) - 1;
}

SourceItem Pool::ItemAt(std::int64_t pass, std::int64_t item) const {
  const std::size_t number = SegmentOf(item);
  const Segment& segment = segments_[number];
  const std::int64_t selected = segment.selection.size();
  std::int64_t index = item - segment.begin;
  if (index >= segment.whole) {
    const std::int64_t rest = segment.size - segment.whole;
    const std::int64_t walked = pass * rest + index - segment.whole;
    index = walked % selected;
    if (order_.order == SampleOrder::kShuffled) {
      index = Permutation(selected, SeedOf(order_.seed, SeedRole::kRest, segment.source),
                          walked / selected)(index);
    }
  } else if (index >= selected) {
    index %= selected;
  }
  return {segment.source, segment.selection(index)};
}

SourceItem Pool::At(std::int64_t pass, std::int64_t position) const {
  switch (order_.order) {
    case SampleOrder::kShuffled:
      return ItemAt(pass, Permutation(size_, order_.seed, pass)(position));
    case SampleOrder::kBlockShuffled:
      return ItemAt(pass, (*Blocks(pass))(position));
    case SampleOrder::kSequential:
      break;
  }
  return ItemAt(pass, position);
}

std::optional<std::int64_t> Pool::CountBefore(const Segment& segment, std::int64_t pass,
                                              std::int64_t position) const {
  if (segments_.size() == 1) return position;
  if (position == 0) return 0;
  if (position == size_) return segment.size;
  if (order_.order == SampleOrder::kSequential) {
    return std::clamp<std::int64_t>(position - segment.begin, 0, segment.size);
  }
  if (order_.order == SampleOrder::kShuffled) return std::nullopt;
  const auto blocks = Blocks(pass);
  const auto is_ours = [&](std::int64_t item) {
    return item >= segment.begin && item < segment.begin + segment.size;
  };
  const std::int64_t window = blocks->WindowOf(position);
  std::int64_t count = 0;
  for (std::int64_t w = 0; w < window; ++w) {
    blocks->VisitBlocks(w, [&](std::int64_t chunk) {
      const auto c = static_cast<std::size_t>(chunk);
      if (is_ours(chunk_begins_[c])) count += chunk_begins_[c + 1] - chunk_begins_[c];
    });
  }
  for (std::int64_t p = blocks->window_begin(window); p < position; ++p) {
    if (is_ours((*blocks)(p))) ++count;
  }
  return count;
}

// Items `begin` to before `end` of a segment as runs of neighbours in its selection:
// visit(first index of the run, end of it, item of the first, the part asked for: begin, end).
template <typename Visit>
void Pool::VisitRuns(const Segment& segment, std::int64_t pass, std::int64_t begin,
                     std::int64_t end, Visit visit) const {
  const std::int64_t selected = segment.selection.size();
  const std::int64_t whole_end = std::min(end, segment.whole);
  for (std::int64_t copy = begin / selected * selected; copy < whole_end; copy += selected) {
    visit(0, selected, segment.begin + copy, std::max<std::int64_t>(begin - copy, 0),
          std::min(whole_end - copy, selected));
  }
  begin = std::max(begin, segment.whole) - segment.whole;
  end -= segment.whole;
  const std::int64_t rest = segment.size - segment.whole;
  const std::int64_t from = rest == 0 ? 0 : pass * rest % selected;
  const std::int64_t first_part = std::min(rest, selected - from);  // before it wraps around
  if (order_.order == SampleOrder::kShuffled && begin < end) {
    visit(0, selected, segment.begin + segment.whole, 0, selected);
    return;
  }
  if (begin < std::min(end, first_part)) {
    visit(from, from + first_part, segment.begin + segment.whole, from + begin,
          from + std::min(end, first_part));
  }
  if (std::max(begin, first_part) < end) {
    visit(0, rest - first_part, segment.begin + segment.whole + first_part,
          std::max(begin, first_part) - first_part, end - first_part);
  }
}

template <typename Positions>
void Pool::AppendItems(std::int64_t pass, std::int64_t begin, std::int64_t end, Positions positions,
                       std::vector<BlockUse>& uses) const {
  for (std::size_t s = SegmentOf(begin); s < segments_.size() && segments_[s].begin < end; ++s) {
    const Segment& segment = segments_[s];
    const PlanSource& source = sources_[static_cast<std::size_t>(segment.source)];
    const auto visit = [&](std::int64_t run_begin, std::int64_t run_end, std::int64_t item,
                           std::int64_t from, std::int64_t to) {
      const std::int64_t last = BlockOf(source, segment.selection(to - 1));
      for (std::int64_t b = BlockOf(source, segment.selection(from)); b <= last; ++b) {
        const std::int64_t first_index =
            std::max(run_begin, segment.selection.CountBelow(BlockBegin(source, b)));
        const std::int64_t end_index =
            std::min(run_end, segment.selection.CountBelow(BlockBegin(source, b + 1)));
        if (first_index >= end_index) continue;  // nothing of it is selected
        const auto [use_begin, use_end] =
            positions(item + first_index - run_begin, item + end_index - run_begin);
        uses.push_back({segment.source, b, use_begin, use_end});
      }
    };
    VisitRuns(segment, pass, std::max<std::int64_t>(begin - segment.begin, 0),
              std::min(end - segment.begin, segment.size), visit);
  }
}

void Pool::AppendBlocks(std::int64_t pass, std::int64_t begin, std::int64_t end,
                        std::vector<BlockUse>& uses) const {
  using Range = std::pair<std::int64_t, std::int64_t>;
  begin = std::max<std::int64_t>(begin, 0);
  end = std::min(end, size_);
  if (begin >= end) return;
  if (order_.order == SampleOrder::kSequential) {
    AppendItems(pass, begin, end, [](std::int64_t b, std::int64_t e) { return Range(b, e); }, uses);
    return;
  }
  if (order_.order == SampleOrder::kShuffled) {
    AppendItems(pass, 0, size_, [&](std::int64_t, std::int64_t) { return Range(0, size_); }, uses);
    return;
  }
  const auto blocks = Blocks(pass);
  for (std::int64_t window = blocks->WindowOf(begin);
       window < blocks->window_count() && blocks->window_begin(window) < end; ++window) {
    const Range range(blocks->window_begin(window), blocks->window_begin(window + 1));
    blocks->VisitBlocks(window, [&](std::int64_t chunk) {
      const auto c = static_cast<std::size_t>(chunk);
      AppendItems(
          pass, chunk_begins_[c], chunk_begins_[c + 1],
          [&](std::int64_t, std::int64_t) { return range; }, uses);
    });
  }
}

}  // namespace internal
}  // namespace ait::inline v0
