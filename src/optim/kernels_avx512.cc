// SPDX-License-Identifier: Apache-2.0
#define AIT_KERNELS kAvx512Kernels
#include "optim/kernels.inc"
