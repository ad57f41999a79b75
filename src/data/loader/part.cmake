# From a plan and sources to batches.
list(APPEND _headers
  loader/bad_samples.h
  loader/collate.h
  loader/data_batch.h
  loader/data_loader.h
  loader/io_experiment.h
  loader/loader_statistics.h)
list(APPEND _sources
  loader/bad_sample_log.cc
  loader/bad_samples.cc
  loader/batch_memory.cc
  loader/buffer_pool.cc
  loader/collate.cc
  loader/data_batch.cc
  loader/data_loader.cc
  loader/io_experiment.cc
  loader/loader_core.cc
  loader/loader_schedule.cc
  loader/loader_statistics.cc
  loader/loader_work.cc)
