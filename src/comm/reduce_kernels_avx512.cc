// SPDX-License-Identifier: Apache-2.0
#define AIT_KERNELS kAvx512ReduceKernels
#include "comm/reduce_kernels.inc"
