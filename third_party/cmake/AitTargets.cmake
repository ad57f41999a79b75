# The four kinds of targets of this project. Every folder of src/, tests/, benchmarks/ and examples/ is a
# list of calls to these functions, so that a target's place tells how it is built.

# ait_library(<component> HEADERS <h>... SOURCES <cc>... [PUBLIC <target>...] [PRIVATE <target>...])
#   Makes the library ait::<component>. Headers are named relative to include/ait/<component>/ and are
#   installed and verified (each compiles alone). PUBLIC are the components and dependencies that its
#   headers include; PRIVATE those that only its sources do.
function(ait_library component)
  cmake_parse_arguments(arg "" "" "HEADERS;SOURCES;PUBLIC;PRIVATE" ${ARGN})
  list(TRANSFORM arg_HEADERS PREPEND "${PROJECT_SOURCE_DIR}/include/ait/${component}/")
  add_library(ait_${component} ${arg_SOURCES})
  add_library(ait::${component} ALIAS ait_${component})
  target_sources(ait_${component} PUBLIC
    FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${arg_HEADERS})
  target_include_directories(ait_${component} PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_compile_features(ait_${component} PUBLIC cxx_std_20)
  target_link_libraries(ait_${component} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE} ait_warnings)
  set_target_properties(ait_${component} PROPERTIES
    EXPORT_NAME ${component}
    OUTPUT_NAME ait_${component}
    POSITION_INDEPENDENT_CODE ON
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    VERIFY_INTERFACE_HEADER_SETS ${AIT_BUILD_TESTS})
  set_property(GLOBAL APPEND PROPERTY AIT_LIBRARIES ait_${component})
  if(AIT_INSTALL)
    set(floor lower)
    if(component IN_LIST AIT_UPPER_COMPONENTS)
      set(floor upper)
    endif()
    install(TARGETS ait_${component} EXPORT ait_${floor}_targets FILE_SET HEADERS)
  endif()
endfunction()

# ait_test(<name> [SOURCES <cc>...] [DEPS <target>...] [LABELS <label>...] [TIMEOUT <s>] [ENVIRONMENT <k=v>...])
#   Makes the test <folder>.<name> from <name>.cc (or SOURCES), linked with GoogleTest and its main.
function(ait_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT arg_SOURCES)
    set(arg_SOURCES ${name}.cc)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  set(target ${folder}_${name})
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${target} PRIVATE ${arg_DEPS} third_party::googletest ait_warnings)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O1>)  # parsing dominates
  add_test(NAME ${folder}.${name} COMMAND ${target})
  set_tests_properties(${folder}.${name} PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

# ait_benchmark(<name> [SOURCES <cc>...] [DEPS <target>...])
#   Makes the program bench_<name> from <name>_benchmark.cc; `./quickstart bench <name>` runs it.
function(ait_benchmark name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  if(NOT arg_SOURCES)
    set(arg_SOURCES ${name}_benchmark.cc)
  endif()
  add_executable(bench_${name} ${arg_SOURCES})
  target_include_directories(bench_${name} PRIVATE
    "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/benchmarks")
  target_link_libraries(bench_${name} PRIVATE ${arg_DEPS} third_party::json ait_warnings)
  set_target_properties(bench_${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/benchmarks")
  add_dependencies(benchmarks bench_${name})
  set_property(GLOBAL APPEND PROPERTY AIT_BENCHMARKS ${name})
endfunction()
