# Which rank reads which sample when.
