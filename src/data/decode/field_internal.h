// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_FIELD_INTERNAL_H_
#define AIT_DATA_DECODE_FIELD_INTERNAL_H_

// What transforms share: finding the field they work on, and putting the result in its place.

#include <string>

#include "ait/base/status.h"
#include "ait/data/sample.h"

namespace ait::inline v0::internal {

/// The field, which stays in the sample. **Errors.** InvalidArgument with the names there are.
StatusOr<SampleField*> FieldOf(Sample& sample, const std::string& name);

/// No field of that name: says which there are.
Status MissingField(const Sample& sample, const std::string& name);

/// `result` is called `output` (empty: `from`) and stands where `from` stood.
void Replace(Sample& sample, const std::string& from, const std::string& output,
             SampleField result);

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_DECODE_FIELD_INTERNAL_H_
