// SPDX-License-Identifier: Apache-2.0
#define AIT_KERNELS kAvx2Kernels
#define AIT_STORAGE_KERNELS kAvx2StorageKernels
#include "optim/kernels.inc"
#include "optim/storage_kernels.inc"
