// Replaces cupti.cpp in a build whose CUDA toolkit has no CUPTI.
#include "cuda/runtime/cupti.hpp"

namespace millrace::cuda {

std::unique_ptr<ActivityTracer> make_cupti_tracer(std::string* why_not, const char*) {
  if (why_not) *why_not = "millrace was built without CUPTI";
  return nullptr;
}

}  // namespace millrace::cuda
