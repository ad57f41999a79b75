// SPDX-License-Identifier: Apache-2.0
#include "device/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>

#include <string_view>

namespace ait::inline v0::internal {
namespace {

/// The folder of libtorch, if the process has loaded it: ".../torch/lib".
std::string TorchFolder() {
  std::string folder;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        const std::string_view path = info->dlpi_name;
        const std::size_t slash = path.rfind('/');
        if (slash == std::string_view::npos || path.substr(slash + 1) != "libtorch_cpu.so") {
          return 0;
        }
        *static_cast<std::string*>(result) = path.substr(0, slash);
        return 1;
      },
      &folder);
  return folder;
}

std::string PathOf(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
  return map->l_name;
}

std::string LastError() {
  const char* error = dlerror();
  return error != nullptr ? error : "unknown error";
}

}  // namespace

StatusOr<DynamicLibrary> DynamicLibrary::Open(const std::string& file, const std::string& soname,
                                              const std::vector<std::string>& beside_torch) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
  const auto opened = [](void* handle) { return DynamicLibrary(handle, PathOf(handle)); };
  if (!file.empty()) {
    if (void* handle = dlopen(file.c_str(), kFlags)) return opened(handle);
    return FailedPreconditionError("the library ", file, " cannot be opened: ", LastError());
  }
  if (void* handle = dlopen(soname.c_str(), kFlags | RTLD_NOLOAD)) return opened(handle);
  std::string tried;
  if (const std::string folder = TorchFolder(); !folder.empty()) {
    for (const std::string& relative : beside_torch) {
      const std::string path = StrCat(folder, "/", relative);
      if (void* handle = dlopen(path.c_str(), kFlags)) return opened(handle);
      tried += StrCat(LastError(), "; ");
    }
  }
  if (void* handle = dlopen(soname.c_str(), kFlags)) return opened(handle);
  return FailedPreconditionError(soname, " cannot be opened: ", tried, LastError());
}

void* DynamicLibrary::Find(const char* name) const { return dlsym(handle_, name); }

}  // namespace ait::inline v0::internal
