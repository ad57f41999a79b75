// SPDX-License-Identifier: Apache-2.0
// For AVX2.
#define AIT_RESIZE_KERNELS kResizeAvx2
#include "data/decode/resize_kernels.inc"
