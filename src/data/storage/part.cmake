# Where data lies: files, web servers, object stores.
list(APPEND _headers
  storage/local_storage.h
  storage/storage.h)
list(APPEND _sources
  storage/block_pool.cc
  storage/file_facts.cc
  storage/local_choice.cc
  storage/local_file.cc
  storage/local_list.cc
  storage/local_storage.cc
  storage/mapped_file.cc
  storage/pool_stream.cc
  storage/read_pool.cc
  storage/read_stream.cc
  storage/read_together.cc
  storage/ring_stream.cc
  storage/storage.cc)
