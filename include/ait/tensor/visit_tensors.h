// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_VISIT_TENSORS_H_
#define AIT_TENSOR_VISIT_TENSORS_H_

// Finds the tensors in a value of any structure: how `DataParallel::Unit` and `Checkpoint` look into
// what functions take and return.
//
// A value is a tensor, or any nesting of std::optional, pointers, pairs, tuples, variants and
// ranges, maps among them, or a type of your own with a function that is found beside it:
//
//   template <typename Visit>
//   void VisitTensors(const Attended& a, Visit&& visit) { visit(a.values); visit(a.caches); }
//
// Numbers, strings and empty types have none. Tensors are visited in a fixed order, so that two
// values of one structure can be compared member by member.

#include <iterator>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace at {
class Tensor;
}

namespace ait::inline v0::internal {

/// What is searched.
enum class TensorSearch {
  /// Pointers are followed; a type that the search does not know does not compile.
  kResults,
  /// Only what the value itself holds, so that a copy has tensors of its own: pointers are not
  /// followed, and types that the search does not know are passed over.
  kInputs,
};

/// A value that refers to tensors which it does not hold, such as a span of them.
template <typename T>
inline constexpr bool kIsViewOfTensors = false;
template <typename T>
  requires requires(const T& value) { *std::begin(value); }
inline constexpr bool kIsViewOfTensors<T> =
    std::is_trivially_copyable_v<T> &&
    !std::is_trivially_copyable_v<
        std::remove_cvref_t<decltype(*std::begin(std::declval<const T&>()))>>;

/// Calls `function` with each tensor in `value`, as `const at::Tensor&`.
template <TensorSearch search, typename T, typename Function>
void ForEachTensor(const T& value, const Function& function) {
  const auto visit = [&function](const auto& member) { ForEachTensor<search>(member, function); };
  if constexpr (std::is_same_v<T, at::Tensor>) {
    function(value);
  } else if constexpr (requires { VisitTensors(value, visit); }) {
    VisitTensors(value, visit);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_empty_v<T> ||
                       std::is_convertible_v<const T&, std::string_view>) {
    // None.
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](const auto&... members) { (visit(members), ...); }, value);
  } else if constexpr (requires { value.valueless_by_exception(); }) {
    std::visit(visit, value);
  } else if constexpr (requires { std::begin(value) != std::end(value); }) {
    if constexpr (search == TensorSearch::kInputs) {
      static_assert(!kIsViewOfTensors<T>,
                    "ait: this input only refers to its tensors, which may be gone when backward "
                    "needs them; give a std::vector or another container that holds them");
    }
    using Member = std::remove_cvref_t<decltype(*std::begin(value))>;
    // A range of its own kind, such as a path, has no end and no tensors.
    if constexpr (!std::is_arithmetic_v<Member> && !std::is_same_v<Member, T>) {
      for (const auto& member : value) visit(member);
    }
  } else if constexpr (requires { value.has_value() ? *value : *value; }) {
    if (value.has_value()) visit(*value);
  } else if constexpr (search == TensorSearch::kInputs) {
    // It goes to the function as it is.
  } else if constexpr (requires { static_cast<bool>(value) ? *value : *value; }) {
    if (static_cast<bool>(value)) visit(*value);
  } else {
    static_assert(sizeof(T) == 0,
                  "ait: it is not known where this result holds tensors; give the type a function "
                  "VisitTensors(const T&, visit), see ait/tensor/visit_tensors.h");
  }
}

}  // namespace ait::inline v0::internal

#endif  // AIT_TENSOR_VISIT_TENSORS_H_
