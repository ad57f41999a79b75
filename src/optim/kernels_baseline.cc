// SPDX-License-Identifier: Apache-2.0
#define AIT_KERNELS kBaselineKernels
#define AIT_STORAGE_KERNELS kBaselineStorageKernels
#include "optim/kernels.inc"
#include "optim/storage_kernels.inc"
