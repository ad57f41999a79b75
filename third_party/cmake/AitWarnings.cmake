# Warnings of our own targets. They are errors only in presets (AIT_WERROR), never for consumers.
add_library(ait_warnings INTERFACE)
target_compile_options(ait_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow=local;-Wnon-virtual-dtor;-Wno-missing-field-initializers>
  $<$<AND:$<BOOL:${AIT_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>)
if(AIT_SANITIZE)
  string(REPLACE "," ";" _ait_sanitizers "${AIT_SANITIZE}")
  add_compile_options(-fsanitize=${AIT_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${AIT_SANITIZE})
  if("undefined" IN_LIST _ait_sanitizers)
    add_compile_options(-fno-sanitize=vptr -fno-sanitize-recover=undefined)  # libtorch has hidden type info
  endif()
endif()
if(AIT_INSTALL)
  install(TARGETS ait_warnings EXPORT ait_lower_targets)  # static libraries name it in LINK_ONLY
  set_target_properties(ait_warnings PROPERTIES EXPORT_NAME internal_warnings)
endif()
