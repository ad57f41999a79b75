# third_party::zlib: gzip, for text corpora and image sets.
if(TARGET third_party::zlib)
  return()
endif()
find_package(ZLIB QUIET)
if(TARGET ZLIB::ZLIB)
  add_library(third_party::zlib INTERFACE IMPORTED)
  set_target_properties(third_party::zlib PROPERTIES INTERFACE_LINK_LIBRARIES ZLIB::ZLIB)
endif()
