# third_party::zstd: Zstandard.
if(TARGET third_party::zstd)
  return()
endif()
find_path(AIT_ZSTD_INCLUDE_DIR zstd.h)
find_library(AIT_ZSTD_LIBRARY zstd)
mark_as_advanced(AIT_ZSTD_INCLUDE_DIR AIT_ZSTD_LIBRARY)
if(AIT_ZSTD_INCLUDE_DIR AND AIT_ZSTD_LIBRARY)
  add_library(third_party::zstd INTERFACE IMPORTED)
  set_target_properties(third_party::zstd PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${AIT_ZSTD_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${AIT_ZSTD_LIBRARY}")
endif()
