// SPDX-License-Identifier: Apache-2.0
#define AIT_KERNELS kAvx512BandwidthKernels
#include "memory/bandwidth_kernels.inc"
