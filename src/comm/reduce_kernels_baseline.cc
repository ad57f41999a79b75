// SPDX-License-Identifier: Apache-2.0
#define AIT_KERNELS kBaselineReduceKernels
#include "comm/reduce_kernels.inc"
