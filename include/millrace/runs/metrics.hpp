// metrics.jsonl: one object an optimizer step; validation.jsonl: one an evaluation; shares.jsonl: one each time that
// the ranks' shares change. Append-only, continuous across restarts. A line is written by one write(). Lines that a
// full disk does not take wait in memory for room, 4 MiB of them; newer ones are then left out, whole.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "millrace/telemetry/timeline.hpp"

namespace millrace {

struct StepMetrics {
  std::int64_t step = 0, epoch = 0, samples = 0;  // after this step
  double loss = 0, lr = 0, grad_norm = 0, loss_scale = 1, samples_per_second = 0, seconds = 0;
  bool skipped = false;             // overflow: nothing was changed
  std::int64_t unread_samples = 0;  // over all ranks; skipped by data.on_error
  std::array<double, phase_count> phase_seconds{};
};

// What a whole line of metrics.jsonl says; none: it is not one.
std::optional<StepMetrics> parse_metrics(const std::string& line);

struct ValidationMetrics {
  std::int64_t step = 0, epoch = 0, samples = 0;  // so far
  double loss = 0;
  bool labels = true;
  double top1 = 0, top5 = 0;  // with labels
};

class MetricsFile {
 public:
  // Lines of steps after `last_step` are cut off (they were past the checkpoint). Error(data).
  MetricsFile(const std::filesystem::path&, std::int64_t last_step);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  void write(const StepMetrics&);                          // Error(data), but not for a full disk
  void write(const ValidationMetrics&);                    // the same; not of a step that has a line
  void write(std::int64_t step, const std::string& line);  // the same
  void sync();                                             // before a checkpoint is named

 private:
  void add(const char* line, std::size_t length);
  std::size_t append(const char*, std::size_t);
  bool drain();
  std::filesystem::path path_;
  std::string waiting_;        // from within a line or its begin
  std::int64_t left_out_ = 0;  // since the disk is full
  int file_ = -1;
  std::int64_t newest_ = 0;  // step of the last line
};

}  // namespace millrace
