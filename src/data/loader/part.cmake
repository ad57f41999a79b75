# From a plan and sources to batches.
list(APPEND _headers
  loader/io_experiment.h)
list(APPEND _sources
  loader/io_experiment.cc)
