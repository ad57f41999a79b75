# The Gloo transport on processes.
add_executable(gloo_contract_rank gloo_contract_rank.cc)
target_link_libraries(gloo_contract_rank PRIVATE ait::tensor ait_communicator_contract ait_warnings)
ait_test(gloo_contract_test DEPS ait_communicator_contract ait_test_support
  LABELS contract multiprocess TIMEOUT 300)
target_compile_definitions(multiprocess_gloo_contract_test PRIVATE
  AIT_TEST_RANK="$<TARGET_FILE:gloo_contract_rank>")
add_dependencies(multiprocess_gloo_contract_test gloo_contract_rank)

# The same over a backend of c10d, for which libtorch's own process group stands.
add_executable(c10d_contract_rank c10d_contract_rank.cc)
target_include_directories(c10d_contract_rank PRIVATE "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(c10d_contract_rank
  PRIVATE ait::tensor ait_communicator_contract third_party::gloo ait_warnings)
foreach(name IN ITEMS c10d_contract_test c10d_sums_contract_test)
  ait_test(${name} DEPS ait_communicator_contract ait_test_support
    LABELS contract multiprocess TIMEOUT 300)
  target_compile_definitions(multiprocess_${name} PRIVATE
    AIT_TEST_RANK="$<TARGET_FILE:c10d_contract_rank>")
  add_dependencies(multiprocess_${name} c10d_contract_rank)
  # Three ranks over sockets, with deadlines of seconds: beside a compiler they starve.
  set_tests_properties(multiprocess.${name} PROPERTIES RUN_SERIAL TRUE)
endforeach()

add_executable(gloo_rank gloo_rank.cc)
target_link_libraries(gloo_rank PRIVATE ait::tensor ait_warnings)
foreach(name IN ITEMS gloo_failure_test gloo_torchrun_test)
  ait_test(${name} DEPS ait_test_support LABELS multiprocess TIMEOUT 300)
  target_compile_definitions(multiprocess_${name} PRIVATE AIT_TEST_RANK="$<TARGET_FILE:gloo_rank>")
  add_dependencies(multiprocess_${name} gloo_rank)
endforeach()
target_link_libraries(multiprocess_gloo_torchrun_test PRIVATE third_party::torch)

add_executable(hang_rank hang_rank.cc)
target_link_libraries(hang_rank PRIVATE ait::tensor ait_warnings)
ait_test(hang_test DEPS ait_test_support LABELS multiprocess TIMEOUT 300)
target_compile_definitions(multiprocess_hang_test PRIVATE AIT_TEST_RANK="$<TARGET_FILE:hang_rank>")
add_dependencies(multiprocess_hang_test hang_rank)
