#pragma once
#include <filesystem>
#include <vector>

#include "millrace/advisor/rules/verdict.hpp"

namespace millrace {

// Of a run that has ended: what was measured since stands in its summary.json in place of what its account said. Throws
// an Error where it cannot be written.
void rewrite_verdict(const std::filesystem::path& run_dir, const BottleneckMetrics&, const std::vector<Trial>&);

}  // namespace millrace
