// SPDX-License-Identifier: Apache-2.0
#define AIT_KERNELS kAvx2Kernels
#include "optim/kernels.inc"
