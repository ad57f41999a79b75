# third_party::openmp: OpenMP on the very run time whose threads libtorch's are; the wheel brings its own copy.
#
# at::parallel_for is a template: it runs on one thread in any source that is compiled without OpenMP.
if(TARGET third_party::openmp)
  return()
endif()
find_package(OpenMP QUIET COMPONENTS CXX)
find_library(AIT_TORCH_GOMP_LIBRARY NAMES libgomp.so.1 HINTS "${AIT_TORCH_ROOT}/lib" NO_DEFAULT_PATH)
mark_as_advanced(AIT_TORCH_GOMP_LIBRARY)
if(TARGET OpenMP::OpenMP_CXX)
  add_library(third_party::openmp INTERFACE IMPORTED)
  if(AIT_TORCH_GOMP_LIBRARY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    separate_arguments(_ait_openmp_flags UNIX_COMMAND "${OpenMP_CXX_FLAGS}")
    set_target_properties(third_party::openmp PROPERTIES
      INTERFACE_COMPILE_OPTIONS "${_ait_openmp_flags}"
      INTERFACE_LINK_LIBRARIES "${AIT_TORCH_GOMP_LIBRARY}")
  else()
    set_target_properties(third_party::openmp PROPERTIES INTERFACE_LINK_LIBRARIES OpenMP::OpenMP_CXX)
  endif()
endif()
