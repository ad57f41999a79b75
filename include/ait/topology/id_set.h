// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_ID_SET_H_
#define AIT_TOPOLOGY_ID_SET_H_

// Sets of CPUs and of NUMA nodes: small integers that may have gaps, in the kernel's list syntax.
//
//   AIT_ASSIGN_OR_RETURN(CpuSet cpus, CpuSet::Parse("0-3,8"));
//   cpus = cpus & budget.affinity.value;
//   for (int cpu : cpus) Use(cpu);
//   return cpus.ToString();                // "0-3,8"
//
// A set is a value: copy it, compare it. **Thread-safety.** As of an int.

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"

namespace ait::inline v0 {

class IdSet {
 public:
  /// Largest id that a set holds; the kernel's own limits are far below.
  static constexpr int kMaxId = 65'535;

  IdSet() = default;
  /// Ids outside 0 to kMaxId are left out.
  IdSet(std::initializer_list<int> ids);

  /// The ids `first` to `last`, both included; empty if `last` < `first`.
  static IdSet Range(int first, int last);

  /// Reads "0-3,8"; spaces and newlines around are skipped, and the empty text is the empty set.
  /// **Errors.** InvalidArgument: anything else, a range that runs backwards, an id above kMaxId.
  static StatusOr<IdSet> Parse(std::string_view text);

  /// The shortest list: "0-3,8"; "" for the empty set.
  std::string ToString() const;

  bool empty() const { return ids_.empty(); }
  int size() const { return static_cast<int>(ids_.size()); }
  bool contains(int id) const;
  /// The least id. The set is not empty.
  int front() const { return ids_.front(); }
  /// The id at `index` in ascending order, 0 ≤ index < size().
  int operator[](int index) const { return ids_[static_cast<std::size_t>(index)]; }

  // Ascending.
  std::vector<int>::const_iterator begin() const { return ids_.begin(); }
  std::vector<int>::const_iterator end() const { return ids_.end(); }

  /// Adds an id; one outside 0 to kMaxId is left out.
  void Add(int id);

  /// Union, intersection, and `a` without `b`.
  friend IdSet operator|(const IdSet& a, const IdSet& b);
  friend IdSet operator&(const IdSet& a, const IdSet& b);
  friend IdSet operator-(const IdSet& a, const IdSet& b);
  friend bool operator==(const IdSet& a, const IdSet& b) = default;

 private:
  std::vector<int> ids_;  // ascending, without repetition
};

/// CPUs (hardware threads) as the kernel numbers them.
using CpuSet = IdSet;
/// NUMA nodes as the kernel numbers them.
using NodeSet = IdSet;

}  // namespace ait::inline v0

#endif  // AIT_TOPOLOGY_ID_SET_H_
