// A run's folder as a page for people: one HTML file that needs nothing else, no network and no script; of two or more
// runs, side by side.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace millrace {

// Reads config.cfg, run.json, metrics.jsonl and, where they are, validation.jsonl, summary.json, layers.json and
// trace.json of each.
// Runs may be going on, or have been killed: the page shows what there is. Takes the memory of a page, however long the
// run. Error(data) naming a file that is missing or damaged.
std::string report_page(const std::vector<std::filesystem::path>& folders);

}  // namespace millrace
