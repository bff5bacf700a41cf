// Run: everything that a report page shows of one run.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "millrace/runs/curves.hpp"
#include "millrace/runs/run_folder.hpp"

namespace millrace {

struct Run {
  std::string name;  // of the folder
  std::filesystem::path folder;
  std::string config;                       // text of config.cfg
  std::map<std::string, std::string> keys;  // the same, by "section.key"
  RunRecord record;
  Curves curves;
  std::vector<Validation> validations;
  std::optional<RunSummary> summary;  // nullopt: the run has not ended yet, or was killed
  std::vector<EvaluationRecord> evaluations;
  std::vector<LayerTiming> layers;  // empty: not measured
  std::vector<RankTrace> trace;     // empty: not sampled
  std::string trace_note;           // why an existing trace is not shown
  bool running = false;             // a process of this host has the folder in use
  bool outdated = false;            // the summary belongs to an earlier launch
};

// Reads all files of a run. Error(data) when one is damaged, or run.json, config.cfg or metrics.jsonl is missing.
Run read_run(const std::filesystem::path& folder);

}  // namespace millrace
