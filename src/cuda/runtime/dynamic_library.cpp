#include "cuda/runtime/dynamic_library.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include "millrace/base/error.hpp"

namespace millrace::cuda {

// Two threads may load the library at the same time: dlopen() counts references.
void DynamicLibrary::load() {
  if (handle_.load(std::memory_order_acquire)) return;
  void* handle = dlopen(file_, RTLD_NOW | RTLD_LOCAL);
  const std::string problem = handle ? "" : dlerror();
  if (!handle) handle = dlopen(fmt::format("{}/{}", built_with_, file_).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    fail(Exit::config, "{} is missing: {}. install it, add its folder to LD_LIBRARY_PATH, or set run.device = cpu",
         product_, problem);
  handle_.store(handle, std::memory_order_release);
}

void* DynamicLibrary::symbol(const char* name) {
  if (void* here = dlsym(RTLD_DEFAULT, name)) return here;
  load();
  void* found = dlsym(handle_.load(std::memory_order_acquire), name);
  if (!found)
    fail(Exit::config, "{} ({}) has no function {}. install a newer version, or set run.device = cpu", product_, file_,
         name);
  return found;
}

}  // namespace millrace::cuda
