# third_party::googletest: GoogleTest and GoogleMock with their main.
if(TARGET third_party::googletest)
  return()
endif()
find_package(GTest QUIET)
if(TARGET GTest::gmock_main)
  add_library(third_party::googletest INTERFACE IMPORTED)
  set_target_properties(third_party::googletest PROPERTIES
    INTERFACE_LINK_LIBRARIES "GTest::gmock_main;GTest::gmock;GTest::gtest")
endif()
