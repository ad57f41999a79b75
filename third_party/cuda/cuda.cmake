# third_party::cuda: the CUDA run time of the toolkit. Found without enabling the CUDA language, which a
# component that holds .cu files does itself.
if(TARGET third_party::cuda)
  return()
endif()
find_package(CUDAToolkit QUIET)
if(TARGET CUDA::cudart)
  add_library(third_party::cuda INTERFACE IMPORTED)
  set_target_properties(third_party::cuda PROPERTIES INTERFACE_LINK_LIBRARIES CUDA::cudart)
endif()
