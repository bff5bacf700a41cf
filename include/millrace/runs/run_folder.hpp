// RunFolder: reads run.dir, the folder in which a training leaves its files. `report`, `top` and `scaling` read every
// run through this class. It never writes and never takes the folder's lock.
//
//   const RunFolder folder("runs/mine");
//   const RunRecord record = folder.record();
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/telemetry/account.hpp"
#include "millrace/telemetry/trace.hpp"

namespace millrace {

// An earlier launch of a run, and what the launch after it changed. A new run begins without earlier launches.
struct EarlierStart {
  std::string started;               // UTC
  std::int64_t resumed_at_step = 0;  // 0: it began the run
  std::optional<double> seconds;     // from start to end; nullopt: it was killed, or had no steps left
  std::vector<std::string> changed;  // "optim.lr 0.1 -> 0.05": keys that it changed against the launch before it
};

// run.json: what one launch of the training resolved and found when it began.
struct RunRecord {
  std::string started;                                     // UTC, such as 2026-03-01T10:00:00Z
  int pid = 0;                                             // of rank 0; 0: not recorded
  std::string device, collective, precision;               // descriptions for people
  std::int64_t resumed_at_step = 0;                        // 0: the launch started from the beginning
  std::int64_t planned_steps = 0;                          // the step at which the run is complete
  std::int64_t steps_per_epoch = 0;                        // 0: not recorded
  std::vector<EarlierStart> earlier;                       // the oldest first; empty in files of old versions
  std::vector<std::string> changed;                        // keys changed against the launch before
  std::vector<std::pair<std::string, std::string>> ranks;  // host and core placement of each rank
  // Names and values for display: data sets, resolved settings, libraries. Empty when read leniently.
  std::vector<std::pair<std::string, std::string>> facts;
};

// One recommendation of the advisor, as summary.json keeps it.
struct Advice {
  double gain = 1;       // predicted speed-up factor; 0 for a hint, which has no estimate
  bool at_most = false;  // the gain is an upper bound
  std::string evidence, advice, caution;
};

// An operation of the network in traced steps, beside the least time that the machine's rates allow.
struct OperationLight {
  std::string name, kind;
  double step_ms = 0;   // of a step, forward and backward; 0: not traced
  double least_ms = 0;  // the same by the rates
};

// summary.json: the result of the launch that ended last.
struct RunSummary {
  std::string started;  // of the launch that wrote it; with `pid` it identifies the launch. "" in files of old versions
  int pid = 0;
  std::string status;       // finished, stopped, diverged, unread or unsaved
  std::int64_t steps = -1;  // -1: not recorded
  std::int64_t epoch = 0, samples = 0;
  std::int64_t unread_samples = 0;  // skipped because they could not be read
  double samples_per_second = 0, seconds = 0;
  std::optional<double> loss, valid_loss, valid_accuracy, valid_top5;
  std::optional<double> speed_of_light;    // the least time of the steps by the machine's rates / their time
  std::vector<OperationLight> operations;  // the same of operations, the longest first; empty: not measured
  std::string cuda_graph;               // "on", or "off" with the reason; "" without a GPU and in files of old versions
  std::string verdict;                  // one line; "" in files of old versions
  std::vector<Advice> findings, hints;  // hints have no predicted gain
  Account account;                      // empty when read leniently
};

inline constexpr const char* evaluation_format = "millrace-evaluation-1";  // "format" in evaluation.json

// The result of an evaluation: of the last one of the training, or of `millrace eval`.
struct EvaluationRecord {
  struct Class {
    std::string name;  // its number if it has none
    double labels = 0, predictions = 0, precision = 0, recall = 0, f1 = 0, iou = 0;
  };
  struct Output {
    std::string name;  // its number, with the name of its loss if there are several
    std::optional<double> mae, rmse, r2;
  };
  std::string title;                                                  // "validation at the end", "millrace eval, ..."
  std::vector<std::pair<std::string, std::optional<double>>> values;  // loss and metrics, by their names in the file
  std::vector<Class> classes;
  std::vector<std::vector<double>> confusion;  // [label][prediction]; of labels that are 0 or 1: four counts each
  std::vector<Output> outputs;
};

// One operation of layers.json, in milliseconds per micro-batch.
struct LayerTiming {
  std::string name, implementation;
  double forward_ms = 0, backward_ms = 0;
  double least_ms = 0;  // lower bound by the roofline model
};

class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  const std::filesystem::path& path() const { return path_; }
  std::string name() const;  // last component of the path, also for "." and "runs/mine/"

  std::filesystem::path record_file() const { return path_ / "run.json"; }
  std::filesystem::path summary_file() const { return path_ / "summary.json"; }
  std::filesystem::path config_file() const { return path_ / "config.cfg"; }
  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path validations_file() const { return path_ / "validation.jsonl"; }
  std::filesystem::path layers_file() const { return path_ / "layers.json"; }
  std::filesystem::path evaluation_file() const { return path_ / "evaluation.json"; }
  std::filesystem::path trace_file() const { return path_ / "trace.json"; }
  std::filesystem::path latest_checkpoint_file() const { return path_ / "checkpoints" / "latest"; }

  // Strict reading. Error(data) names the file when it is missing, damaged or lacks a field; the optional files give an
  // empty value when they are missing.
  void require_run() const;  // the folder, run.json, config.cfg and metrics.jsonl exist
  RunRecord record() const;
  std::optional<RunSummary> summary() const;
  std::string config() const;
  std::vector<LayerTiming> layers() const;
  std::vector<EvaluationRecord> evaluations() const;  // of summary.json and evaluation.json
  std::vector<RankTrace> trace() const;
  std::uintmax_t trace_bytes() const;  // size of trace.json; 0: there is none

  // Lenient reading, for files that may be replaced at any moment. A field that is missing or of another type keeps its
  // default. nullopt: the file is missing, damaged or empty.
  std::optional<RunRecord> try_record() const;
  std::optional<RunSummary> try_summary() const;
  std::optional<std::int64_t> try_latest_checkpoint_step() const;

  // Whether a process on this host holds the folder's lock, that is, trains in it.
  bool in_use() const;

  // Whether summary.json was written by an earlier launch than run.json. False when one of them is missing or damaged,
  // and for a finished run that was launched again with no steps left. Files of old versions, which do not name their
  // launch, are compared by time.
  bool summary_is_outdated() const;

 private:
  std::filesystem::path path_;
};

// The account in the text of a summary.json. `file` is the name for the Error(data).
Account parse_account(const std::string& summary, const std::filesystem::path& file);

// The keys of a configuration file as "section.key". The values of a key that occurs several times are joined by
// newlines.
std::map<std::string, std::string> parse_config_keys(const std::string& config);

// Whether the process that wrote `record` exists. nullopt: it ran on another host, or its id is not recorded.
std::optional<bool> process_exists(const RunRecord& record);

}  // namespace millrace
