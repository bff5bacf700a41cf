// RunLogger: writes the progress of a run on rank 0: metrics.jsonl, validation.jsonl and, with train.balance,
// shares.jsonl. On request it also writes events for TensorBoard (log.tensorboard) and a file for Prometheus
// (log.prometheus).
#pragma once
#include <memory>
#include <optional>

#include "millrace/telemetry/event_file.hpp"
#include "train/logging/prometheus_file.hpp"
#include "train/session/evaluation.hpp"

namespace millrace {

class RunLogger {
 public:
  // On rank 0. `run`: the state that the run starts or resumes from. Session and timeline must outlive the logger.
  // Error(data) when metrics.jsonl or validation.jsonl cannot be opened.
  RunLogger(const Session&, const RunState& run, const Timeline&);
  void step(const StepMetrics&);
  void shares(LoadBalancer&);  // writes the changes of the micro-batch split since the last call
  void evaluation(const RunState&, const Evaluation&);
  void before_checkpoint();  // flushes all files to the disk
  void checkpoint(std::int64_t step);
  void ended(Exit);

 private:
  MetricsFile metrics_, validations_;
  std::optional<MetricsFile> shares_;
  std::unique_ptr<EventFile> events_;
  const std::int64_t events_every_;
  std::int64_t evaluated_step_;  // the last evaluation in the TensorBoard events
  std::unique_ptr<PrometheusFile> status_;
};

}  // namespace millrace
