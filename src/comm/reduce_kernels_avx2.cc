// SPDX-License-Identifier: Apache-2.0
#define AIT_KERNELS kAvx2ReduceKernels
#include "comm/reduce_kernels.inc"
