// SPDX-License-Identifier: Apache-2.0
#define AIT_KERNELS kBaselineBandwidthKernels
#include "memory/bandwidth_kernels.inc"
