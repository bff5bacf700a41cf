#pragma once
#include <string_view>

#include "cuda/block/block.hpp"

namespace millrace::cuda {

// Enqueues *word = place, and before it ++*runs unless runs is null. Both are in page-locked host memory, which the
// host can read after a kernel has failed; see flight_recorder.hpp.
void record_breadcrumb(const LaunchContext&, std::uint64_t* word, std::uint64_t place, std::uint64_t* runs);

// Whether a kernel with this name, mangled or not, records breadcrumbs. Profiles leave them out: they are no work.
inline bool is_breadcrumb(std::string_view kernel) { return kernel.find("RecordBreadcrumb") != kernel.npos; }

}  // namespace millrace::cuda
