// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/id_set.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "topology/kernel_file_internal.h"

namespace ait::inline v0 {

IdSet::IdSet(std::initializer_list<int> ids) {
  for (int id : ids) Add(id);
}

IdSet IdSet::Range(int first, int last) {
  IdSet set;
  for (int id = std::max(first, 0); id <= std::min(last, kMaxId); ++id) set.ids_.push_back(id);
  return set;
}

StatusOr<IdSet> IdSet::Parse(std::string_view text) {
  const std::string_view list = internal::Trim(text);
  IdSet set;
  if (list.empty()) return set;
  for (std::string_view range : internal::Split(list, ',')) {
    const std::size_t dash = range.find('-');
    const auto first = internal::ParseNumber<int>(range.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : internal::ParseNumber<int>(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > kMaxId) {
      return InvalidArgumentError("list \"", list, "\": \"", range,
                                  "\" is not a number or an ascending range of numbers from 0 to ",
                                  kMaxId, "; write it like \"0-3,8\"");
    }
    for (int id = *first; id <= *last; ++id) set.ids_.push_back(id);
  }
  std::sort(set.ids_.begin(), set.ids_.end());
  set.ids_.erase(std::unique(set.ids_.begin(), set.ids_.end()), set.ids_.end());
  return set;
}

std::string IdSet::ToString() const {
  std::string text;
  for (auto first = ids_.begin(); first != ids_.end();) {
    auto last = first;
    while (last + 1 != ids_.end() && *(last + 1) == *last + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(*first);
    if (last != first) text += '-' + std::to_string(*last);
    first = last + 1;
  }
  return text;
}

bool IdSet::contains(int id) const { return std::binary_search(ids_.begin(), ids_.end(), id); }

void IdSet::Add(int id) {
  if (id < 0 || id > kMaxId) return;
  const auto at = std::lower_bound(ids_.begin(), ids_.end(), id);
  if (at == ids_.end() || *at != id) ids_.insert(at, id);
}

IdSet operator|(const IdSet& a, const IdSet& b) {
  IdSet result;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result.ids_));
  return result;
}

IdSet operator&(const IdSet& a, const IdSet& b) {
  IdSet result;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result.ids_));
  return result;
}

IdSet operator-(const IdSet& a, const IdSet& b) {
  IdSet result;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result.ids_));
  return result;
}

}  // namespace ait::inline v0
