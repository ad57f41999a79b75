// SPDX-License-Identifier: Apache-2.0
#include "ait/base/log.h"

namespace ait::inline v0 {

std::string_view Name(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "unknown";
}

}  // namespace ait::inline v0
