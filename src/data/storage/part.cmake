# Where data lies: files, web servers, object stores.
list(APPEND _headers
  storage/http_storage.h
  storage/retry.h
  storage/storage.h)
list(APPEND _sources
  storage/block_pool.cc
  storage/read_stream.cc
  storage/retry.cc
  storage/storage.cc
  storage/uri.cc)
if(AIT_HAVE_CURL)
  list(APPEND _sources
    storage/curl_transfer.cc
    storage/http_client.cc
    storage/http_storage.cc
    storage/range_call.cc
    storage/remote_object.cc
    storage/remote_stream.cc)
  list(APPEND _private third_party::curl)
else()
  list(APPEND _sources storage/no_http.cc)
endif()
