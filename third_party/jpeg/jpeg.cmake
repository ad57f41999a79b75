# third_party::jpeg: decodes JPEG images.
if(TARGET third_party::jpeg)
  return()
endif()
find_package(JPEG QUIET)
if(TARGET JPEG::JPEG)
  add_library(third_party::jpeg INTERFACE IMPORTED)
  set_target_properties(third_party::jpeg PROPERTIES INTERFACE_LINK_LIBRARIES JPEG::JPEG)
endif()
