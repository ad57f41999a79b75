// SPDX-License-Identifier: Apache-2.0
#define AIT_KERNELS kAvx512Kernels
#define AIT_STORAGE_KERNELS kAvx512StorageKernels
#include "optim/kernels.inc"
#include "optim/storage_kernels.inc"
