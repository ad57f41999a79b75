# third_party::curl: the transport of HTTP and S3.
if(TARGET third_party::curl)
  return()
endif()
find_package(CURL QUIET)
if(TARGET CURL::libcurl)
  add_library(third_party::curl INTERFACE IMPORTED)
  set_target_properties(third_party::curl PROPERTIES INTERFACE_LINK_LIBRARIES CURL::libcurl)
endif()
