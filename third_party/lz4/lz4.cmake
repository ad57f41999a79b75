# third_party::lz4: LZ4 frames.
if(TARGET third_party::lz4)
  return()
endif()
find_path(AIT_LZ4_INCLUDE_DIR lz4frame.h)
find_library(AIT_LZ4_LIBRARY lz4)
mark_as_advanced(AIT_LZ4_INCLUDE_DIR AIT_LZ4_LIBRARY)
if(AIT_LZ4_INCLUDE_DIR AND AIT_LZ4_LIBRARY)
  add_library(third_party::lz4 INTERFACE IMPORTED)
  set_target_properties(third_party::lz4 PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${AIT_LZ4_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${AIT_LZ4_LIBRARY}")
endif()
