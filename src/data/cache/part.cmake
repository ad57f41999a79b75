# Copies of remote objects on disk and in memory.
list(APPEND _headers
  cache/stage.h
  cache/tiered_cache.h)
list(APPEND _sources
  cache/cache_ahead.cc
  cache/cache_core.cc
  cache/cache_read.cc
  cache/directory_shelf.cc
  cache/entry.cc
  cache/file_io.cc
  cache/part_map.cc
  cache/private_shelf.cc
  cache/stage.cc
  cache/stage_manifest.cc
  cache/stage_plan.cc
  cache/stage_run.cc
  cache/tier.cc
  cache/tiered_cache.cc
  cache/warm.cc)
