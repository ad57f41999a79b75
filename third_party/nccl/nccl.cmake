# third_party::nccl: the header of NCCL. The library is opened at run time, so that a process has one copy:
# the one that libtorch_cuda loaded.
if(TARGET third_party::nccl)
  return()
endif()
find_path(AIT_NCCL_INCLUDE_DIR nccl.h
  HINTS "${AIT_TORCH_ROOT}/../nvidia/nccl/include" "${CUDAToolkit_INCLUDE_DIRS}")
mark_as_advanced(AIT_NCCL_INCLUDE_DIR)
if(AIT_NCCL_INCLUDE_DIR)
  add_library(third_party::nccl INTERFACE IMPORTED)
  set_target_properties(third_party::nccl PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${AIT_NCCL_INCLUDE_DIR}")
endif()
