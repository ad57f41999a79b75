// SPDX-License-Identifier: Apache-2.0
// tf.train.Example: fields lie within the input, and what was read is written and read again alike.
#include "data/format/tf_example_internal.h"
#include "fuzz/fuzz.h"

namespace ait::testing {

std::vector<std::string> FuzzSeeds() {
  Sample sample = {.key = "a/7"};
  sample.Set({.name = "jpg", .value = ByteView::Copy(std::string(200, 'j'))});
  const std::int64_t ints[] = {0, -1, 300};
  sample.Set(ArrayField("ints", DType::kInt64, {3}, std::as_bytes(std::span(ints))));
  const float floats[] = {1.5f, -0.0f};
  sample.Set(ArrayField("floats", DType::kFloat32, {2}, std::as_bytes(std::span(floats))));
  const auto bytes = internal::EncodeExample(sample);
  return bytes.ok() ? std::vector<std::string>{*bytes} : std::vector<std::string>{};
}

}  // namespace ait::testing

namespace ait {

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Sample sample;
  if (!internal::DecodeExample(testing::Copied(data, size), sample).ok()) return 0;
  const StatusOr<std::string> written = internal::EncodeExample(sample);
  if (!written.ok()) return 0;  // such as a feature "__key__" of numbers
  Sample again;
  AIT_FUZZ_CHECK(internal::DecodeExample(ByteView::Copy(*written), again).ok());
  AIT_FUZZ_CHECK(again.key == sample.key);
  AIT_FUZZ_CHECK(again.fields.size() == sample.fields.size());
  for (const SampleField& field : sample.fields) {
    const SampleField* other = again.Find(field.name);
    AIT_FUZZ_CHECK(other != nullptr && other->value.text() == field.value.text());
  }
  return 0;
}

}  // namespace ait
