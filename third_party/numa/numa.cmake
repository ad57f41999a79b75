# third_party::numa: libnuma.
if(TARGET third_party::numa)
  return()
endif()
find_path(AIT_NUMA_INCLUDE_DIR numa.h)
find_library(AIT_NUMA_LIBRARY numa)
mark_as_advanced(AIT_NUMA_INCLUDE_DIR AIT_NUMA_LIBRARY)
if(AIT_NUMA_INCLUDE_DIR AND AIT_NUMA_LIBRARY)
  add_library(third_party::numa INTERFACE IMPORTED)
  set_target_properties(third_party::numa PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${AIT_NUMA_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${AIT_NUMA_LIBRARY}")
endif()
