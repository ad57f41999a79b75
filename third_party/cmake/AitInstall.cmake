# Install rules and the package config: find_package(ait CONFIG) gives ait::<component> and ait::ait.
include(CMakePackageConfigHelpers)
set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/ait")

# Two sets of targets, so that a user of the lower floor needs no libtorch though the package holds both.
set(_floors lower)
if(AIT_HAVE_TORCH)
  list(APPEND _floors upper)
endif()
list(GET _floors -1 _highest)
install(TARGETS ait EXPORT ait_${_highest}_targets)
foreach(floor IN LISTS _floors)
  install(EXPORT ait_${floor}_targets NAMESPACE ait:: DESTINATION "${_package_dir}" FILE ait-${floor}-targets.cmake)
endforeach()

# Optional dependencies that the libraries of the lower floor link.
set(_ait_found_optional "")
foreach(dependency IN ITEMS mpi liburing curl jpeg png zstd lz4)
  string(TOUPPER ${dependency} _upper)
  if(AIT_HAVE_${_upper})
    string(APPEND _ait_found_optional " ${dependency}")
  endif()
endforeach()
configure_package_config_file(third_party/cmake/ait-config.cmake.in ait-config.cmake
  INSTALL_DESTINATION "${_package_dir}")
write_basic_package_version_file(ait-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/ait-config.cmake" "${PROJECT_BINARY_DIR}/ait-config-version.cmake"
  DESTINATION "${_package_dir}")
# The package finds its dependencies by the same files as the build did.
foreach(dependency IN ITEMS threads abseil json zlib openssl mpi numa liburing curl jpeg png zstd lz4 torch gloo openmp cuda nccl)
  install(FILES "third_party/${dependency}/${dependency}.cmake"
    DESTINATION "${_package_dir}/third_party/${dependency}")
endforeach()
