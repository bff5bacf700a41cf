// Traces of what a GPU runs, by CUPTI's activity records. One watch a process: so is CUPTI.
#pragma once
#include <memory>
#include <string>

#include "millrace/device/activity.hpp"

namespace millrace::cuda {

// Null, with the reason, where the library is not there, or was not when millrace was built, or another profiler is
// attached. library: another than the toolkit's, for tests.
std::unique_ptr<ActivityTracer> make_cupti_tracer(std::string* why_not, const char* library = nullptr);

}  // namespace millrace::cuda
