// SPDX-License-Identifier: Apache-2.0
#include "ait/data/loader/collate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "ait/base/float16.h"

namespace ait::inline v0 {
namespace {

/// The field `name` of a sample, which is probably the one at `index`.
const SampleField* FieldOf(const Sample& sample, std::size_t index, std::string_view name) {
  if (index < sample.fields.size() && sample.fields[index].name == name) {
    return &sample.fields[index];
  }
  return sample.Find(name);
}

template <typename T>
void FillAs(std::span<std::byte> out, double value) {
  T number;
  if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_same_v<T, bool>) {
      number = value != 0;
    } else {
      // 2^63 is a double, the greatest int64 is not.
      const double least = static_cast<double>(std::numeric_limits<T>::min());
      const double above = std::ldexp(1.0, std::numeric_limits<T>::digits);
      const double rounded = std::nearbyint(value);
      if (!(rounded > least)) {
        number = std::numeric_limits<T>::min();
      } else if (rounded >= above) {
        number = std::numeric_limits<T>::max();
      } else {
        number = static_cast<T>(rounded);
      }
    }
  } else if constexpr (std::is_floating_point_v<T>) {
    number = static_cast<T>(value);
  } else {
    number = T(static_cast<float>(value));
  }
  for (std::size_t at = 0; at + sizeof(T) <= out.size(); at += sizeof(T)) {
    std::memcpy(out.data() + at, &number, sizeof(T));
  }
}

void Fill(std::span<std::byte> out, DType dtype, double value) {
  if (value == 0 && !std::signbit(value)) {
    if (!out.empty()) std::memset(out.data(), 0, out.size());
    return;
  }
  switch (dtype) {
    case DType::kUInt8:
      return FillAs<std::uint8_t>(out, value);
    case DType::kInt8:
      return FillAs<std::int8_t>(out, value);
    case DType::kInt16:
      return FillAs<std::int16_t>(out, value);
    case DType::kInt32:
      return FillAs<std::int32_t>(out, value);
    case DType::kInt64:
      return FillAs<std::int64_t>(out, value);
    case DType::kFloat16:
      return FillAs<Float16>(out, value);
    case DType::kBFloat16:
      return FillAs<BFloat16>(out, value);
    case DType::kFloat32:
      return FillAs<float>(out, value);
    case DType::kFloat64:
      return FillAs<double>(out, value);
    case DType::kBool:
      return FillAs<bool>(out, value);
    case DType::kUInt16:
      return FillAs<std::uint16_t>(out, value);
    case DType::kUInt32:
      return FillAs<std::uint32_t>(out, value);
  }
}

/// One field of all samples, and whether and how they fit together.
class FieldStack {
 public:
  FieldStack(const CollateInput& input, std::size_t index, const FieldPadding* padding)
      : input_(input), padding_(padding) {
    const SampleField& first = input.samples[0].fields[index];
    fields_.reserve(input.samples.size());
    for (const Sample& sample : input.samples) {
      fields_.push_back(FieldOf(sample, index, first.name));
    }
    is_packed_ = !input.row_begins.empty();
  }

  std::string_view name() const { return fields_[0]->name; }

  /// What prevents an array; ok if nothing does.
  Status Check() const {
    const SampleField& first = *fields_[0];
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      const SampleField* const field = fields_[i];
      if (field == nullptr) return Problem(i, "it is missing");
      if (field->kind != FieldKind::kArray) return Problem(i, "it is no array");
      if (field->dtype != first.dtype) return Problem(i, "it is of another dtype");
      const std::int64_t count = ElementCount(field->shape);
      if (count < 0 || static_cast<std::size_t>(count) * Width() != field->value.size_bytes()) {
        return Problem(i, StrCat("it has ", field->value.size_bytes(),
                                 " bytes, which is not what its shape says"));
      }
      if (!IsRagged()) {
        if (field->shape != first.shape) return Problem(i, "it is of another shape");
      } else if (field->shape.empty() || field->shape.size() != first.shape.size() ||
                 !std::equal(field->shape.begin() + 1, field->shape.end(),
                             first.shape.begin() + 1)) {
        return Problem(i, "it is of another shape beyond the first dimension, or has none");
      }
    }
    return OkStatus();
  }

  Status AddTo(BatchBuilder& out) const { return IsRagged() ? AddRagged(out) : AddEqual(out); }

 private:
  // Rows of different lengths.
  bool IsRagged() const { return is_packed_ || padding_ != nullptr; }
  std::size_t Width() const { return static_cast<std::size_t>(SizeOf(fields_[0]->dtype)); }

  Status Problem(std::size_t i, std::string_view what) const {
    const Sample& sample = input_.samples[i];
    return InvalidArgumentError("field \"", name(), "\" cannot be stacked because of sample ",
                                sample.id, " \"", sample.key, "\": ", what);
  }

  Status AddEqual(BatchBuilder& out) const {
    std::vector<std::int64_t> shape = {static_cast<std::int64_t>(fields_.size())};
    shape.insert(shape.end(), fields_[0]->shape.begin(), fields_[0]->shape.end());
    AIT_ASSIGN_OR_RETURN(std::span<std::byte> bytes, out.Add(name(), fields_[0]->dtype, shape));
    const std::size_t size = fields_[0]->value.size_bytes();
    for (std::size_t i = 0; i < fields_.size() && size != 0; ++i) {
      std::memcpy(bytes.data() + i * size, fields_[i]->value.data(), size);
    }
    out.Drop(name());
    return OkStatus();
  }

  std::size_t RowCount() const {
    return is_packed_ ? input_.row_begins.size() - 1 : fields_.size();
  }
  std::size_t RowBegin(std::size_t row) const {
    return is_packed_ ? static_cast<std::size_t>(input_.row_begins[row]) : row;
  }

  StatusOr<std::int64_t> Length() const {
    std::int64_t longest = 0;
    const std::int64_t fixed = padding_ != nullptr ? padding_->length : 0;
    for (std::size_t row = 0; row < RowCount(); ++row) {
      std::int64_t length = 0;
      for (std::size_t i = RowBegin(row); i < RowBegin(row + 1); ++i) {
        length += fields_[i]->shape[0];
        if (fixed > 0 && length > fixed) {
          return Problem(i, StrCat("its row has a length of ", length, ", allowed are ", fixed));
        }
      }
      longest = std::max(longest, length);
    }
    if (fixed > 0) return fixed;
    return RoundUp(longest, padding_ != nullptr ? padding_->multiple_of : 1);
  }

  static std::int64_t RoundUp(std::int64_t n, std::int64_t step) {
    return (n + step - 1) / step * step;
  }

  Status AddRagged(BatchBuilder& out) const {
    AIT_ASSIGN_OR_RETURN(const std::int64_t length, Length());
    const std::size_t rows = RowCount();
    std::vector<std::int64_t> shape = {static_cast<std::int64_t>(rows), length};
    shape.insert(shape.end(), fields_[0]->shape.begin() + 1, fields_[0]->shape.end());
    AIT_ASSIGN_OR_RETURN(std::span<std::byte> bytes, out.Add(name(), fields_[0]->dtype, shape));
    const std::size_t row_bytes = rows == 0 ? 0 : bytes.size() / rows;
    for (std::size_t row = 0; row < rows; ++row) {
      const std::span<std::byte> to = bytes.subspan(row * row_bytes, row_bytes);
      std::size_t at = 0;
      for (std::size_t i = RowBegin(row); i < RowBegin(row + 1); ++i) {
        const std::size_t size = fields_[i]->value.size_bytes();
        if (size != 0) std::memcpy(to.data() + at, fields_[i]->value.data(), size);
        at += size;
      }
      Fill(to.subspan(at), fields_[0]->dtype, padding_ != nullptr ? padding_->value : 0);
    }
    AIT_RETURN_IF_ERROR(AddMask(out, length));
    out.Drop(name());
    return OkStatus();
  }

  Status AddMask(BatchBuilder& out, std::int64_t length) const {
    const auto rows = static_cast<std::int64_t>(RowCount());
    const PaddingMask mask = padding_ != nullptr ? padding_->mask : PaddingMask::kNone;
    if (mask == PaddingMask::kLengths) {
      AIT_ASSIGN_OR_RETURN(auto to, out.Add(StrCat(name(), ".length"), DType::kInt64, {rows}));
      ForEachRow([&](std::size_t row, std::int64_t filled, std::span<const std::int64_t>) {
        std::memcpy(to.data() + row * sizeof(filled), &filled, sizeof(filled));
      });
    } else if (mask == PaddingMask::kMask) {
      AIT_ASSIGN_OR_RETURN(auto to, out.Add(StrCat(name(), ".mask"), DType::kBool, {rows, length}));
      ForEachRow([&](std::size_t row, std::int64_t filled, std::span<const std::int64_t>) {
        const auto begin = to.begin() + static_cast<std::ptrdiff_t>(row) * length;
        std::fill(begin, begin + filled, std::byte{1});
        std::fill(begin + filled, begin + length, std::byte{0});
      });
    }
    if (!is_packed_) return OkStatus();
    AIT_ASSIGN_OR_RETURN(auto to,
                         out.Add(StrCat(name(), ".segments"), DType::kInt32, {rows, length}));
    auto* const numbers = reinterpret_cast<std::int32_t*>(to.data());
    ForEachRow([&](std::size_t row, std::int64_t filled, std::span<const std::int64_t> lengths) {
      std::int32_t* at = numbers + static_cast<std::ptrdiff_t>(row) * length;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        at = std::fill_n(at, lengths[i], static_cast<std::int32_t>(i + 1));
      }
      std::fill_n(at, length - filled, 0);
    });
    return OkStatus();
  }

  /// Calls `visit(row, length without padding, lengths of its samples)`.
  template <typename Visit>
  void ForEachRow(Visit visit) const {
    std::vector<std::int64_t> lengths;
    for (std::size_t row = 0; row < RowCount(); ++row) {
      lengths.clear();
      std::int64_t filled = 0;
      for (std::size_t i = RowBegin(row); i < RowBegin(row + 1); ++i) {
        lengths.push_back(fields_[i]->shape[0]);
        filled += fields_[i]->shape[0];
      }
      visit(row, filled, lengths);
    }
  }

  const CollateInput& input_;
  const FieldPadding* padding_;
  std::vector<const SampleField*> fields_;  // of each sample; null where it is missing
  bool is_packed_ = false;
};

class StackFunction {
 public:
  explicit StackFunction(StackOptions options) : options_(std::move(options)) {}

  Status operator()(const CollateInput& input, BatchBuilder& out) const {
    const std::vector<SampleField>& fields = input.samples[0].fields;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const bool is_required = Contains(options_.required, fields[i].name);
      if (fields[i].kind != FieldKind::kArray && !is_required) continue;
      const FieldStack stack(input, i, PaddingOf(fields[i].name));
      const Status fits = stack.Check();
      if (fits.ok()) {
        AIT_RETURN_IF_ERROR(stack.AddTo(out));
      } else if (is_required) {
        return fits;
      }
    }
    for (const std::string& name : options_.required) {
      if (input.samples[0].Find(name) == nullptr) {
        return InvalidArgumentError("sample ", input.samples[0].id, " \"", input.samples[0].key,
                                    "\" has no field \"", name, "\", which is required");
      }
    }
    return OkStatus();
  }

 private:
  static bool Contains(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  const FieldPadding* PaddingOf(const std::string& name) const {
    for (const FieldPadding& padding : options_.padding) {
      if (padding.field == name) return &padding;
    }
    return nullptr;
  }

  StackOptions options_;
};

}  // namespace

Collate Stack(StackOptions options) {
  for (FieldPadding& padding : options.padding) {
    padding.multiple_of = std::max<std::int64_t>(padding.multiple_of, 1);
    padding.length = std::max<std::int64_t>(padding.length, 0);
  }
  return StackFunction(std::move(options));
}

}  // namespace ait::inline v0
