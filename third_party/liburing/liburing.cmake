# third_party::liburing: io_uring of the Linux kernel.
if(TARGET third_party::liburing)
  return()
endif()
find_path(AIT_LIBURING_INCLUDE_DIR liburing.h)
find_library(AIT_LIBURING_LIBRARY uring)
mark_as_advanced(AIT_LIBURING_INCLUDE_DIR AIT_LIBURING_LIBRARY)
if(AIT_LIBURING_INCLUDE_DIR AND AIT_LIBURING_LIBRARY)
  add_library(third_party::liburing INTERFACE IMPORTED)
  set_target_properties(third_party::liburing PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${AIT_LIBURING_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${AIT_LIBURING_LIBRARY}")
endif()
