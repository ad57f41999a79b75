# third_party::torch: libtorch's CPU part (torch_cpu, c10), and third_party::torch_cuda where it is whole.
#
# Looked for in AIT_TORCH_ROOT (CMake or environment): the directory that holds include/ and lib/, such as
# site-packages/torch of the wheel. Without it, in the project's own .deps/ (filled by ./quickstart) and in
# the torch of AIT_PYTHON (default python3; torch is located, never imported).
#
# libtorch's own CMake package is not used: it enables the CUDA language, edits CMAKE_CXX_FLAGS and fails
# where the toolkit that built the wheel is absent.
if(TARGET third_party::torch)
  return()
endif()
if(NOT AIT_TORCH_ROOT AND DEFINED ENV{AIT_TORCH_ROOT})
  set(AIT_TORCH_ROOT "$ENV{AIT_TORCH_ROOT}")
endif()
if(NOT AIT_TORCH_ROOT AND EXISTS "${CMAKE_CURRENT_LIST_DIR}/../../.deps/torch-2.11.0/torch/lib/libtorch_cpu.so")
  get_filename_component(AIT_TORCH_ROOT "${CMAKE_CURRENT_LIST_DIR}/../../.deps/torch-2.11.0/torch" ABSOLUTE)
endif()
if(NOT AIT_TORCH_ROOT)
  find_program(AIT_PYTHON NAMES python3 python)
  mark_as_advanced(AIT_PYTHON)
  if(AIT_PYTHON)
    execute_process(
      COMMAND "${AIT_PYTHON}" -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE _ait_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _ait_failed)
    if(NOT _ait_failed)
      set(AIT_TORCH_ROOT "${_ait_root}")
    endif()
  endif()
endif()
set(AIT_TORCH_ROOT "${AIT_TORCH_ROOT}" CACHE PATH "libtorch: the directory that holds include/ and lib/")

find_path(AIT_TORCH_INCLUDE_DIR ATen/ATen.h HINTS "${AIT_TORCH_ROOT}/include" NO_DEFAULT_PATH)
foreach(_lib torch_cpu c10 torch_cuda c10_cuda)
  find_library(AIT_TORCH_${_lib}_LIBRARY ${_lib} HINTS "${AIT_TORCH_ROOT}/lib" NO_DEFAULT_PATH)
  mark_as_advanced(AIT_TORCH_${_lib}_LIBRARY)
endforeach()
mark_as_advanced(AIT_TORCH_INCLUDE_DIR)
if(NOT AIT_TORCH_INCLUDE_DIR OR NOT AIT_TORCH_torch_cpu_LIBRARY OR NOT AIT_TORCH_c10_LIBRARY)
  return()  # the caller sees that third_party::torch is missing
endif()

set(AIT_TORCH_VERSION "")
foreach(_file torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(NOT AIT_TORCH_VERSION AND EXISTS "${AIT_TORCH_INCLUDE_DIR}/${_file}")
    file(STRINGS "${AIT_TORCH_INCLUDE_DIR}/${_file}" _text REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
    string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3"
      AIT_TORCH_VERSION "${_text}")
  endif()
endforeach()

find_package(Threads REQUIRED)
foreach(_lib c10 torch_cpu c10_cuda torch_cuda)
  if(AIT_TORCH_${_lib}_LIBRARY)
    add_library(third_party::${_lib} SHARED IMPORTED)
    set_target_properties(third_party::${_lib} PROPERTIES
      IMPORTED_LOCATION "${AIT_TORCH_${_lib}_LIBRARY}")
  endif()
endforeach()
set_target_properties(third_party::c10 PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${AIT_TORCH_INCLUDE_DIR};${AIT_TORCH_INCLUDE_DIR}/torch/csrc/api/include")
set_target_properties(third_party::torch_cpu PROPERTIES
  INTERFACE_LINK_LIBRARIES "third_party::c10;Threads::Threads")
add_library(third_party::torch INTERFACE IMPORTED)
set_target_properties(third_party::torch PROPERTIES
  INTERFACE_LINK_LIBRARIES "third_party::torch_cpu;third_party::c10")

# A wheel installed without its dependencies holds libtorch_cuda.so but can neither link nor load it: NCCL
# beside it tells a whole install from that.
find_file(AIT_TORCH_NCCL_RUNTIME libnccl.so.2
  HINTS "${AIT_TORCH_ROOT}/lib" "${AIT_TORCH_ROOT}/../nvidia/nccl/lib" NO_DEFAULT_PATH)
mark_as_advanced(AIT_TORCH_NCCL_RUNTIME)
if(TARGET third_party::torch_cuda AND TARGET third_party::c10_cuda AND AIT_TORCH_NCCL_RUNTIME)
  set_target_properties(third_party::c10_cuda PROPERTIES INTERFACE_LINK_LIBRARIES third_party::c10)
  set_target_properties(third_party::torch_cuda PROPERTIES
    INTERFACE_LINK_LIBRARIES "third_party::c10_cuda;third_party::torch_cpu")
  add_library(third_party::torch_with_cuda INTERFACE IMPORTED)
  # No program names a symbol of torch_cuda; its static initialisers register the kernels: keep it.
  set_target_properties(third_party::torch_with_cuda PROPERTIES INTERFACE_LINK_LIBRARIES
    "-Wl,--push-state,--no-as-needed;third_party::torch_cuda;-Wl,--pop-state;third_party::torch")
endif()
