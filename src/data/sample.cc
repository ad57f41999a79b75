// SPDX-License-Identifier: Apache-2.0
#include "ait/data/sample.h"

#include <algorithm>
#include <utility>

namespace ait::inline v0 {

const SampleField* Sample::Find(std::string_view name) const {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const SampleField& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

SampleField* Sample::Find(std::string_view name) {
  return const_cast<SampleField*>(std::as_const(*this).Find(name));
}

std::int64_t Sample::size_bytes() const {
  std::int64_t sum = 0;
  for (const SampleField& field : fields)
    sum += static_cast<std::int64_t>(field.value.size_bytes());
  return sum;
}

void Sample::Set(SampleField field) {
  if (SampleField* old = Find(field.name)) {
    *old = std::move(field);
  } else {
    fields.push_back(std::move(field));
  }
}

void Sample::Remove(std::string_view name) {
  std::erase_if(fields, [&](const SampleField& field) { return field.name == name; });
}

std::int64_t ElementCount(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return -1;
  }
  return count;
}

SampleField ArrayField(std::string name, DType dtype, std::vector<std::int64_t> shape,
                       std::span<const std::byte> values) {
  return {.name = std::move(name),
          .value = ByteView::Copy(values),
          .kind = FieldKind::kArray,
          .dtype = dtype,
          .shape = std::move(shape)};
}

}  // namespace ait::inline v0
