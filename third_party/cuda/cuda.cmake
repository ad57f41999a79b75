# third_party::cuda: the headers of the CUDA run time. The library is opened at run time, so that a program
# starts where there is none. Found without enabling the CUDA language, which a component that holds .cu files
# does itself.
if(TARGET third_party::cuda)
  return()
endif()
find_package(CUDAToolkit QUIET)
if(TARGET CUDA::cudart)
  add_library(third_party::cuda INTERFACE IMPORTED)
  set_target_properties(third_party::cuda PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${CUDAToolkit_INCLUDE_DIRS}")
endif()
