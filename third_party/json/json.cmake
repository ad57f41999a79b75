# third_party::json: nlohmann-json, headers only.
if(TARGET third_party::json)
  return()
endif()
find_package(nlohmann_json QUIET)
if(TARGET nlohmann_json::nlohmann_json)
  add_library(third_party::json INTERFACE IMPORTED)
  set_target_properties(third_party::json PROPERTIES
    INTERFACE_LINK_LIBRARIES nlohmann_json::nlohmann_json)
endif()
