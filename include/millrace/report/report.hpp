// Shows the folders of one or more runs as a page for people: one HTML file that needs no network and no scripts.
// Several runs are shown side by side.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// Reads config.cfg, run.json and metrics.jsonl of each run, and validation.jsonl, summary.json, layers.json and
// trace.json where they exist. The runs may still be running, or may have been killed: the page shows what there is.
// The memory needed depends on the page, not on the length of the runs. Error(data) names a file that is missing or
// damaged.
extern const std::string_view page_beginning;  // of every page
std::string report_page(const std::vector<std::filesystem::path>& folders);

}  // namespace millrace
