# third_party::arrow: libarrow and libparquet, for the plug-in that reads Parquet and Arrow IPC files.
#
# Looked for in AIT_ARROW_ROOT (CMake or environment): the folder `pyarrow` of the wheel, or a prefix with include/ and
# lib/. Without it, in the project's own .deps/ and in the system.
if(TARGET third_party::arrow)
  return()
endif()
if(NOT AIT_ARROW_ROOT AND DEFINED ENV{AIT_ARROW_ROOT})
  set(AIT_ARROW_ROOT "$ENV{AIT_ARROW_ROOT}")
endif()
if(NOT AIT_ARROW_ROOT AND EXISTS "${CMAKE_CURRENT_LIST_DIR}/../../.deps/arrow/pyarrow/include")
  get_filename_component(AIT_ARROW_ROOT "${CMAKE_CURRENT_LIST_DIR}/../../.deps/arrow/pyarrow" ABSOLUTE)
endif()
find_path(AIT_ARROW_INCLUDE_DIR parquet/arrow/reader.h HINTS "${AIT_ARROW_ROOT}/include")
foreach(_lib arrow parquet)
  # The wheel has no development name, only lib<name>.so.<version>.
  file(GLOB _versioned "${AIT_ARROW_ROOT}/lib${_lib}.so.*" "${AIT_ARROW_ROOT}/lib/lib${_lib}.so.*")
  list(SORT _versioned)
  set(_name ${_lib})
  foreach(_file IN LISTS _versioned)
    get_filename_component(_name "${_file}" NAME)
    break()
  endforeach()
  find_library(AIT_ARROW_${_lib}_LIBRARY NAMES ${_lib} ${_name} HINTS "${AIT_ARROW_ROOT}" "${AIT_ARROW_ROOT}/lib")
  mark_as_advanced(AIT_ARROW_${_lib}_LIBRARY)
endforeach()
mark_as_advanced(AIT_ARROW_INCLUDE_DIR)
if(AIT_ARROW_INCLUDE_DIR AND AIT_ARROW_arrow_LIBRARY AND AIT_ARROW_parquet_LIBRARY)
  add_library(third_party::arrow INTERFACE IMPORTED)
  set_target_properties(third_party::arrow PROPERTIES
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${AIT_ARROW_INCLUDE_DIR}"
    INTERFACE_INCLUDE_DIRECTORIES "${AIT_ARROW_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${AIT_ARROW_parquet_LIBRARY};${AIT_ARROW_arrow_LIBRARY}")
endif()
