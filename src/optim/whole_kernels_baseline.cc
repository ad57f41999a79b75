// SPDX-License-Identifier: Apache-2.0
#define AIT_WHOLE_KERNELS kBaselineWholeKernels
#include "optim/whole_kernels.inc"
