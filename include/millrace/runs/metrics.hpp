// The files of a run with one JSON object per line: metrics.jsonl has a line for each optimizer step, validation.jsonl
// for each evaluation, and shares.jsonl for each change of the micro-batch split by the load balancer. The files are
// append-only and continuous across restarts. Each line is written by one write(). When the disk is full, up to 4 MiB
// of lines wait in memory; later lines are dropped completely.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "millrace/telemetry/timeline.hpp"

namespace millrace {

struct StepMetrics {
  std::int64_t step = 0, epoch = 0, samples = 0;  // position in the run after this step
  double loss = 0, lr = 0, grad_norm = 0, loss_scale = 1, samples_per_second = 0, seconds = 0;
  double speed_of_light = 0;  // the least time that the machine's rates allow / seconds, at most 1; 0: not known
  // Of a network with `loss` lines: the mean of each loss, by name. The names outlive this object.
  std::span<const std::string> loss_names = {};
  std::array<double, 8> losses{};
  bool skipped = false;             // the gradients overflowed, so the step changed nothing
  std::int64_t unread_samples = 0;  // samples of all ranks that data.on_error skipped
  std::array<double, phase_count> phase_seconds{};
};

// The values of one complete line of metrics.jsonl. nullopt: it is not the line of a step.
std::optional<StepMetrics> parse_metrics(const std::string& line);

struct ValidationMetrics {
  std::int64_t step = 0, epoch = 0, samples = 0;  // position in the run
  double loss = 0;
  bool labels = true;                                       // without labels there are no accuracies
  double top1 = 0, top5 = 0;                                // accuracies, from 0 to 1; NaN: there is none
  std::vector<std::pair<std::string, double>> others = {};  // further metrics, by name
};

class MetricsFile {
 public:
  // Opens the file for appending and cuts off the lines of steps after `last_step`, which is the step of the checkpoint
  // that the run resumes from. Error(data).
  MetricsFile(const std::filesystem::path&, std::int64_t last_step);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  // Error(data) when a line cannot be written, except for a full disk.
  void write(const StepMetrics&);
  // Both functions below do nothing if the file already has a line for this step.
  void write(const ValidationMetrics&);
  void write(std::int64_t step, const std::string& line);  // `line` ends with a newline
  void sync();  // flushes to the disk; call it before a checkpoint gets its final name

 private:
  void add(std::string_view line);
  std::size_t append(std::string_view);
  bool drain();
  std::filesystem::path path_;
  std::string waiting_;        // lines for which the disk had no room; the first may be the rest of a line
  std::int64_t left_out_ = 0;  // lines that were dropped since the disk became full
  int file_ = -1;
  std::int64_t newest_ = 0;  // step of the last line
};

}  // namespace millrace
