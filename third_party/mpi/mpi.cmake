# third_party::mpi: an MPI with its C interface; Open MPI of Debian is looked for first. Only programs that use
# the transport over MPI are linked with it.
if(TARGET third_party::mpi)
  return()
endif()
find_path(AIT_MPI_INCLUDE_DIR mpi.h
  HINTS "$ENV{MPI_HOME}/include" "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/include" /usr/lib64/openmpi/include)
find_library(AIT_MPI_LIBRARY mpi
  HINTS "$ENV{MPI_HOME}/lib" "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/lib" /usr/lib64/openmpi/lib)
mark_as_advanced(AIT_MPI_INCLUDE_DIR AIT_MPI_LIBRARY)
if(AIT_MPI_INCLUDE_DIR AND AIT_MPI_LIBRARY)
  add_library(third_party::mpi INTERFACE IMPORTED)
  set_target_properties(third_party::mpi PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${AIT_MPI_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS "OMPI_SKIP_MPICXX;MPICH_SKIP_MPICXX"
    INTERFACE_LINK_LIBRARIES "-Wl,--push-state,--as-needed;${AIT_MPI_LIBRARY};-Wl,--pop-state")
endif()
