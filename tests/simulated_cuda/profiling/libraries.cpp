// CUPTI and NVML are loaded with dlopen(). The linker gives the calls of src/ to this function (--wrap=dlopen); calls
// of other libraries do not come here.
#include <dlfcn.h>
#include <fmt/core.h>

#include <string>

#ifdef MILLRACE_SIMULATED_CUPTI
#include <cupti.h>
#endif

extern "C" {
void* __real_dlopen(const char* file, int flags);

// The program itself is the library if its name is the one that the driver or the toolkit installs.
void* __wrap_dlopen(const char* file, int flags) {
  const std::string name = file ? file : "";
  bool simulated = name == "libnvidia-ml.so.1";
#ifdef MILLRACE_SIMULATED_CUPTI
  simulated = simulated || name == fmt::format("libcupti.so.{}", CUPTI_API_VERSION / 10000);
#endif
  return __real_dlopen(simulated ? nullptr : file, flags);
}
}
