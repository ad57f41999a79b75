# third_party::cxxopts: command-line options of the programs; the library never uses it.
if(TARGET third_party::cxxopts)
  return()
endif()
find_path(AIT_CXXOPTS_INCLUDE_DIR cxxopts.hpp)
mark_as_advanced(AIT_CXXOPTS_INCLUDE_DIR)
if(AIT_CXXOPTS_INCLUDE_DIR)
  add_library(third_party::cxxopts INTERFACE IMPORTED)
  set_target_properties(third_party::cxxopts PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${AIT_CXXOPTS_INCLUDE_DIR}")
endif()
