// The shell code of jobs/, which CMake makes a part of the program.
#pragma once

namespace millrace::app {

extern const char* const job_site_text;    // jobs/site.sh
extern const char* const job_common_text;  // jobs/common.sh

}  // namespace millrace::app
