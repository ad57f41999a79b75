# The transport over MPI, on processes that mpirun starts.
add_executable(mpi_contract_rank mpi_contract_rank.cc)
target_link_libraries(mpi_contract_rank PRIVATE ait::comm ait_communicator_contract ait_warnings)
ait_test(mpi_contract_test DEPS ait_communicator_contract ait_test_support
  LABELS contract multiprocess TIMEOUT 300)
target_compile_definitions(multiprocess_mpi_contract_test PRIVATE
  AIT_TEST_RANK="$<TARGET_FILE:mpi_contract_rank>")
add_dependencies(multiprocess_mpi_contract_test mpi_contract_rank)
