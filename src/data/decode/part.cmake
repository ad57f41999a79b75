# From bytes to arrays: images, text, augmentation.
list(APPEND _headers
  decode/array_ops.h
  decode/compress.h
  decode/field_transforms.h
  decode/image.h
  decode/image_ops.h
  decode/image_transforms.h
  decode/jpeg.h
  decode/nvjpeg.h
  decode/png.h
  decode/resize.h
  decode/tokenize.h
  decode/tokenizer.h
  decode/transform.h)
list(APPEND _sources
  decode/array_ops.cc
  decode/bpe.cc
  decode/compress.cc
  decode/field_transforms.cc
  decode/image.cc
  decode/image_ops.cc
  decode/image_transforms.cc
  decode/jpeg_geometry.cc
  decode/normalize.cc
  decode/nvjpeg.cc
  decode/pretokenizer.cc
  decode/resize.cc
  decode/resize_kernels_baseline.cc
  decode/resize_transpose.cc
  decode/tiktoken.cc
  decode/tokenize.cc
  decode/tokenizer.cc
  decode/tokenizer_json.cc
  decode/transform.cc
  decode/unicode.cc
  decode/unicode_classes.cc
  decode/unicode_compositions.cc)
if(AIT_HAVE_JPEG)
  list(APPEND _sources
    decode/jpeg.cc
    decode/jpeg_encode.cc
    decode/jpeg_errors.cc)
  list(APPEND _private third_party::jpeg)
else()
  list(APPEND _sources decode/no_jpeg.cc)
endif()
if(AIT_HAVE_PNG)
  list(APPEND _sources decode/png.cc)
  list(APPEND _private third_party::png)
else()
  list(APPEND _sources decode/no_png.cc)
endif()
# Kernels: one source, compiled once per level of vector instructions.
set_source_files_properties(decode/resize_kernels_baseline.cc PROPERTIES COMPILE_OPTIONS -O3)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND _sources
    decode/resize_dispatch_x86.cc
    decode/resize_kernels_avx2.cc)
  set_source_files_properties(decode/resize_kernels_avx2.cc PROPERTIES COMPILE_OPTIONS "-O3;-mavx2")
else()
  list(APPEND _sources decode/resize_dispatch_portable.cc)
endif()
# Equal bits at every level of vector instructions.
set_source_files_properties(decode/resize_kernels.cc PROPERTIES COMPILE_OPTIONS
  "-ffp-contract=off;$<$<CONFIG:Release,RelWithDebInfo>:-O3>")
foreach(_library zstd lz4)
  string(TOUPPER ${_library} _upper)
  if(AIT_HAVE_${_upper})
    list(APPEND _sources decode/${_library}.cc)
    list(APPEND _private third_party::${_library})
  else()
    list(APPEND _sources decode/no_${_library}.cc)
  endif()
endforeach()
