// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_VERSION_H_
#define AIT_BASE_VERSION_H_

// The version of ait. CMake reads these three lines; no other file states the version.

#define AIT_VERSION_MAJOR 0
#define AIT_VERSION_MINOR 1
#define AIT_VERSION_PATCH 0

#endif  // AIT_BASE_VERSION_H_
