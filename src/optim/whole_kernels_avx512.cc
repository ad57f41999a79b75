// SPDX-License-Identifier: Apache-2.0
#define AIT_WHOLE_KERNELS kAvx512WholeKernels
#include "optim/whole_kernels.inc"
