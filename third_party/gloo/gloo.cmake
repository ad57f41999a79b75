# third_party::gloo: the headers of Gloo that libtorch's ProcessGroupGloo.hpp includes. The code is inside
# libtorch_cpu; nothing is linked.
if(TARGET third_party::gloo OR NOT TARGET third_party::torch)
  return()
endif()
find_path(AIT_GLOO_INCLUDE_DIR gloo/config.h)
mark_as_advanced(AIT_GLOO_INCLUDE_DIR)
if(AIT_GLOO_INCLUDE_DIR)
  add_library(third_party::gloo INTERFACE IMPORTED)
  set_target_properties(third_party::gloo PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${AIT_GLOO_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS USE_C10D_GLOO
    INTERFACE_LINK_LIBRARIES third_party::torch)
endif()
