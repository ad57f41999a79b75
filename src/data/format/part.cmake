# Files of samples, and how they are read and written.
list(APPEND _headers
  format/shard.h)
list(APPEND _sources
  format/shard.cc)
