# third_party::eigen: small dense algebra, headers only.
if(TARGET third_party::eigen)
  return()
endif()
find_package(Eigen3 QUIET NO_MODULE)
if(TARGET Eigen3::Eigen)
  add_library(third_party::eigen INTERFACE IMPORTED)
  set_target_properties(third_party::eigen PROPERTIES INTERFACE_LINK_LIBRARIES Eigen3::Eigen)
endif()
