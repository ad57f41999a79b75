# From bytes to arrays: images, text, augmentation.
list(APPEND _headers
  decode/transform.h)
list(APPEND _sources
  decode/transform.cc)
