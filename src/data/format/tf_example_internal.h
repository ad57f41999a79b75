// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_TF_EXAMPLE_INTERNAL_H_
#define AIT_DATA_FORMAT_TF_EXAMPLE_INTERNAL_H_

// tf.train.Example, the protocol buffer that most TFRecord files hold:
//
//   Example { Features features = 1; }        Features { map<string, Feature> feature = 1; }
//   Feature { oneof { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
//   BytesList { repeated bytes value = 1; }   FloatList { repeated float value = 1 [packed]; }
//   Int64List { repeated int64 value = 1 [packed]; }

#include <string>

#include "ait/base/status.h"
#include "ait/data/byte_view.h"
#include "ait/data/sample.h"

namespace ait::inline v0 {
namespace internal {

/// Makes a field of every feature: of bytes a view, under the name of the feature if it is one
/// value, else "name/0", "name/1" and so on; of numbers an array of one dimension. The feature
/// "__key__" becomes the key; without it the key stays as it is.
/// **Errors.** DataLoss: no protocol buffer; InvalidArgument: a feature twice, or of two kinds.
Status DecodeExample(const ByteView& bytes, Sample& sample);

/// The bytes of an Example, features in the order of their names, with the key as "__key__".
/// **Errors.** InvalidArgument: an array that an Example does not hold.
StatusOr<std::string> EncodeExample(const Sample& sample);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_TF_EXAMPLE_INTERNAL_H_
