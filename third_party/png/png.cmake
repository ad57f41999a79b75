# third_party::png: decodes PNG images.
if(TARGET third_party::png)
  return()
endif()
find_package(PNG QUIET)
if(TARGET PNG::PNG)
  add_library(third_party::png INTERFACE IMPORTED)
  set_target_properties(third_party::png PROPERTIES INTERFACE_LINK_LIBRARIES PNG::PNG)
endif()
