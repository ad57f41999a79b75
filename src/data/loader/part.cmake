# From a plan and sources to batches.
