#pragma once
#include <filesystem>
#include <vector>

#include "millrace/advisor/rules/verdict.hpp"

namespace millrace {

// Replaces the verdict, findings and hints in the summary.json of a finished run, using the results of measured trials.
// Error(data) if the file cannot be read or written.
void rewrite_verdict(const std::filesystem::path& run_dir, const BottleneckMetrics&, const std::vector<Trial>&);

}  // namespace millrace
