# third_party::abseil: absl::Status and StatusOr.
if(TARGET third_party::abseil)
  return()
endif()
find_package(absl QUIET)
if(TARGET absl::statusor)
  add_library(third_party::abseil INTERFACE IMPORTED)
  set_target_properties(third_party::abseil PROPERTIES
    INTERFACE_LINK_LIBRARIES "absl::status;absl::statusor;absl::strings")
endif()
