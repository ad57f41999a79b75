# Several hosts: shared memory inside, Gloo between.
add_executable(hierarchical_contract_rank hierarchical_contract_rank.cc)
target_link_libraries(hierarchical_contract_rank
  PRIVATE ait::tensor ait_communicator_contract ait_warnings)
ait_test(hierarchical_contract_test DEPS ait_communicator_contract ait_test_support
  LABELS contract multiprocess TIMEOUT 300)
target_compile_definitions(multiprocess_hierarchical_contract_test PRIVATE
  AIT_TEST_RANK="$<TARGET_FILE:hierarchical_contract_rank>")
add_dependencies(multiprocess_hierarchical_contract_test hierarchical_contract_rank)

add_executable(hosts_rank hosts_rank.cc)
target_include_directories(hosts_rank PRIVATE "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(hosts_rank PRIVATE ait::tensor ait_warnings)
ait_test(hosts_test DEPS ait::base ait_test_support LABELS multiprocess TIMEOUT 300)
target_compile_definitions(multiprocess_hosts_test PRIVATE AIT_TEST_RANK="$<TARGET_FILE:hosts_rank>")
add_dependencies(multiprocess_hosts_test hosts_rank)
if(AIT_BUILD_EXAMPLES AND AIT_BUILD_PROGRAM)
  target_compile_definitions(multiprocess_hosts_test PRIVATE
    AIT_TEST_PROGRAM="$<TARGET_FILE:ait_program>"
    AIT_TEST_GPT="$<TARGET_FILE:example_gpt>"
    AIT_TEST_TEXT="${PROJECT_SOURCE_DIR}/docs/comm.md")
  add_dependencies(multiprocess_hosts_test ait_program example_gpt)
endif()
