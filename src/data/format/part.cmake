# Files of samples, and how they are read and written.
list(APPEND _headers
  format/formats.h
  format/shard.h)
list(APPEND _sources
  format/registry.cc
  format/shard.cc)
