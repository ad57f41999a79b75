// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_PLATEAU_H_
#define AIT_OPTIM_PLATEAU_H_

// `Plateau`: lowers the learning rate when a metric has stopped getting better.
//
// The rule is that of torch's ReduceLROnPlateau: a metric is better than the best so far if it is
// by more than the threshold; after more than `patience` values in a row that are not, the factor
// is multiplied by `decay`, and the next `cooldown` values do not count against it. What it decides
// depends on what it has seen: it has state, which is saved with the run. Its factor multiplies
// that of the schedule.
//
//   ait::Plateau plateau({.patience = 3});
//   plateau.Observe(validation_loss);   // the same number on every rank
//   double rate = learning_rate * schedule.FactorAt(step) * plateau.factor();

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "ait/base/status.h"

namespace ait::inline v0 {

struct PlateauOptions {
  enum class Better : std::uint8_t { kSmaller, kLarger };
  enum class Threshold : std::uint8_t { kRelative, kAbsolute };

  Better better = Better::kSmaller;
  double decay = 0.1;          // 0 < decay < 1
  std::int64_t patience = 10;  // values that may fail to be better; ≥ 0
  std::int64_t cooldown = 0;   // values after a decay that do not count; ≥ 0
  double threshold = 1e-4;     // ≥ 0; relative to the best, then below 1, or absolute
  Threshold threshold_is = Threshold::kRelative;
  double min_factor = 0;       // the factor does not go below; 0 to 1
  double least_change = 1e-8;  // a smaller change of the factor is not made; ≥ 0

  /// **Errors.** InvalidArgument that names the option and its value.
  Status Validate() const;
};

/// What must be saved to go on as if nothing had happened.
struct PlateauState {
  static constexpr int kVersion = 1;
  double factor = 1;
  double best = std::numeric_limits<double>::infinity();  // none yet; −infinity for kLarger
  std::int64_t not_better = 0;                            // values in a row
  std::int64_t cooldown_left = 0;

  bool operator==(const PlateauState&) const = default;
};

/// One line of text, and back. **Errors.** DataLoss: not such a line; FailedPrecondition: of
/// another version, both are named.
std::string ToText(const PlateauState& state);
StatusOr<PlateauState> PlateauStateFromText(std::string_view text);

/// A value. **Thread-safety.** As any value.
class Plateau {
 public:
  /// `options` that `Validate` accepts.
  explicit Plateau(PlateauOptions options = {});

  /// Tells the next value of the metric. NaN is never better.
  void Observe(double metric);
  /// By which the learning rate is multiplied now; 1 at first.
  double factor() const { return state_.factor; }

  const PlateauOptions& options() const { return options_; }
  const PlateauState& state() const { return state_; }
  /// **Errors.** InvalidArgument: a factor outside of 0 to 1, a negative count.
  Status set_state(const PlateauState& state);

 private:
  bool IsBetter(double metric) const;

  PlateauOptions options_;
  PlateauState state_;
};

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_PLATEAU_H_
