# The shared-memory transport on processes.
add_executable(shared_memory_contract_rank shared_memory_contract_rank.cc)
target_link_libraries(shared_memory_contract_rank
  PRIVATE ait::comm ait_communicator_contract ait_warnings)
ait_test(shared_memory_contract_test DEPS ait_communicator_contract ait_test_support
  LABELS contract multiprocess TIMEOUT 300)
target_compile_definitions(multiprocess_shared_memory_contract_test PRIVATE
  AIT_TEST_RANK="$<TARGET_FILE:shared_memory_contract_rank>")
add_dependencies(multiprocess_shared_memory_contract_test shared_memory_contract_rank)

add_executable(shared_memory_rank shared_memory_rank.cc)
target_link_libraries(shared_memory_rank PRIVATE ait::comm ait_warnings)
target_include_directories(shared_memory_rank PRIVATE "${PROJECT_SOURCE_DIR}/src")
ait_test(shared_memory_failure_test DEPS ait::base ait_test_support LABELS multiprocess TIMEOUT 300)
target_compile_definitions(multiprocess_shared_memory_failure_test PRIVATE
  AIT_TEST_RANK="$<TARGET_FILE:shared_memory_rank>")
add_dependencies(multiprocess_shared_memory_failure_test shared_memory_rank)
