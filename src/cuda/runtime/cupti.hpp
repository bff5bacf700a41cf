// Traces the kernels and copies of a GPU with the activity records of CUPTI. CUPTI has one state for the whole process,
// so only one tracer can exist at a time.
#pragma once
#include <memory>
#include <string>

#include "millrace/device/activity.hpp"

namespace millrace::cuda {

// Null, with the reason in why_not (may be null), if CUPTI is missing, if millrace was built without it, or if another
// profiler is attached. library: the file to load instead of the toolkit's, for tests.
std::unique_ptr<ActivityTracer> make_cupti_tracer(std::string* why_not, const char* library = nullptr);

}  // namespace millrace::cuda
