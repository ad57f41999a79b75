# third_party::openssl: SHA-256 and HMAC of libcrypto.
if(TARGET third_party::openssl)
  return()
endif()
find_package(OpenSSL QUIET)
if(TARGET OpenSSL::Crypto)
  add_library(third_party::openssl INTERFACE IMPORTED)
  set_target_properties(third_party::openssl PROPERTIES INTERFACE_LINK_LIBRARIES OpenSSL::Crypto)
endif()
