// SPDX-License-Identifier: Apache-2.0
#define AIT_KERNELS kBaselineKernels
#include "optim/kernels.inc"
