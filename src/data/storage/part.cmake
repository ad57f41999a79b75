# Where data lies: files, web servers, object stores.
list(APPEND _headers
  storage/aws_credentials.h
  storage/http_storage.h
  storage/local_storage.h
  storage/open_storage.h
  storage/retry.h
  storage/s3_storage.h
  storage/sigv4.h
  storage/storage.h)
list(APPEND _sources
  storage/aws_credentials.cc
  storage/block_pool.cc
  storage/file_facts.cc
  storage/instance_credentials_json.cc
  storage/local_choice.cc
  storage/local_file.cc
  storage/local_list.cc
  storage/local_storage.cc
  storage/mapped_file.cc
  storage/open_storage.cc
  storage/pool_stream.cc
  storage/read_pool.cc
  storage/read_stream.cc
  storage/read_together.cc
  storage/retry.cc
  storage/ring_stream.cc
  storage/s3_xml.cc
  storage/sigv4.cc
  storage/storage.cc
  storage/uri.cc)
if(AIT_HAVE_CURL)
  list(APPEND _sources
    storage/curl_transfer.cc
    storage/http_client.cc
    storage/http_date.cc
    storage/http_storage.cc
    storage/instance_credentials.cc
    storage/range_call.cc
    storage/remote_object.cc
    storage/remote_stream.cc
    storage/s3_service.cc
    storage/s3_storage.cc
    storage/s3_upload.cc)
  list(APPEND _private third_party::curl)
else()
  list(APPEND _sources storage/no_http.cc)
endif()
