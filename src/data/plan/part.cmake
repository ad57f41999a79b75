# Which rank reads which sample when.
list(APPEND _headers
  plan/batch_plan.h
  plan/data_plan.h
  plan/plan_agreement.h
  plan/plan_options.h)
list(APPEND _sources
  plan/block_order.cc
  plan/data_plan.cc
  plan/mix_pattern.cc
  plan/plan_agreement.cc
  plan/plan_batch.cc
  plan/plan_options.cc
  plan/plan_progress.cc
  plan/pool.cc
  plan/regroup.cc
  plan/selection.cc
  plan/stage.cc
  plan/verify_plan.cc)
