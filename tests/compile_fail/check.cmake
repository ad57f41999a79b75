# Compiles SOURCE twice: as it stands it must compile, with -DAIT_MISUSE it must not, and the compiler's
# message must match EXPECT. One source for both, so that the misuse cannot fail for another reason.
separate_arguments(flags UNIX_COMMAND "${FLAGS}")
execute_process(COMMAND ${COMPILER} ${flags} -fsyntax-only ${SOURCE}
  RESULT_VARIABLE good ERROR_VARIABLE good_text)
if(NOT good EQUAL 0)
  message(FATAL_ERROR "the good twin does not compile:\n${good_text}")
endif()
execute_process(COMMAND ${COMPILER} ${flags} -DAIT_MISUSE -fsyntax-only ${SOURCE}
  RESULT_VARIABLE bad ERROR_VARIABLE bad_text)
if(bad EQUAL 0)
  message(FATAL_ERROR "the misuse compiles")
endif()
if(NOT bad_text MATCHES "${EXPECT}")
  message(FATAL_ERROR "the misuse fails, but not with \"${EXPECT}\":\n${bad_text}")
endif()
