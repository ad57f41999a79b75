# third_party::benchmark: Google Benchmark.
if(TARGET third_party::benchmark)
  return()
endif()
find_package(benchmark QUIET)
if(TARGET benchmark::benchmark)
  add_library(third_party::benchmark INTERFACE IMPORTED)
  set_target_properties(third_party::benchmark PROPERTIES INTERFACE_LINK_LIBRARIES benchmark::benchmark)
endif()
