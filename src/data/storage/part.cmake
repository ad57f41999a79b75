# Where data lies: files, web servers, object stores.
list(APPEND _headers
  storage/storage.h)
list(APPEND _sources
  storage/block_pool.cc
  storage/read_stream.cc
  storage/storage.cc)
