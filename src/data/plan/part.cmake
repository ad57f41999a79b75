# Which rank reads which sample when.
list(APPEND _headers
  plan/batch_plan.h)
