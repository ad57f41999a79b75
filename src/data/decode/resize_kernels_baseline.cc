// SPDX-License-Identifier: Apache-2.0
// For what the compiler is told to build for.
#define AIT_RESIZE_KERNELS kResizeBaseline
#include "data/decode/resize_kernels.inc"
