// A run's folder, read: what a page is made of.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/runs/curves.hpp"
#include "millrace/telemetry/account.hpp"
#include "millrace/telemetry/trace.hpp"

namespace millrace {

// Whether summary.json tells of an earlier start than run.json, by the start that both name; where an older version
// wrote them, by time. A finished run that was started again is not. Files that are missing or damaged: no.
bool summary_is_outdated(const std::filesystem::path& folder);

struct Advice {  // a finding, as it was written down
  double gain = 1;
  bool at_most = false;
  std::string evidence, advice, caution;
};

// summary.json
struct RunSummary {
  std::string status;
  std::int64_t steps = 0, epoch = 0, samples = 0, unread_samples = 0;
  double samples_per_second = 0, seconds = 0;
  std::optional<double> loss, valid_loss, valid_accuracy, valid_top5;
  std::string verdict;                  // its line; "" in older files
  std::vector<Advice> findings, hints;  // hints without gain
  Account account;
};

struct LayerTiming {  // of layers.json
  std::string name, implementation;
  double forward_ms = 0, backward_ms = 0, least_ms = 0;  // least: by the roofline
};

struct Run {
  std::string name;  // of the folder
  std::filesystem::path folder;
  std::string config;                       // config.cfg
  std::map<std::string, std::string> keys;  // the same, by section.key; several values joined by lines
  // run.json
  std::string started, device, collective;
  std::int64_t resumed_at = 0, steps_wanted = 0;
  std::vector<std::pair<std::string, std::string>> ranks;  // host, placement
  std::vector<std::pair<std::string, std::string>> facts;  // what `auto` came to, data sets, libraries; by name
  Curves curves;
  std::vector<Validation> validations;
  std::optional<RunSummary> ending;
  std::vector<LayerTiming> operations;  // none: not measured
  std::vector<RankTrace> trace;         // none: not sampled
  std::string trace_note;               // why a trace that is there is not shown
  // Whether a process of this machine has the folder in use; whether summary.json tells of an earlier start.
  bool going = false, outdated = false;
};
Run read_run(const std::filesystem::path& folder);  // Error(data)

std::map<std::string, std::string> keys_of(const std::string& config);

}  // namespace millrace
