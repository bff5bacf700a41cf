// Outputs: what rank 0 writes of a run while it goes on: metrics.jsonl, validation.jsonl, with train.balance
// shares.jsonl, and where they are asked for events for TensorBoard (log.tensorboard) and a file for Prometheus
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
  // On rank 0. `run`: where the run begins, or goes on. The others outlive it. Error(data) of the first two alone.
  RunLogger(const Session&, const RunState& run, const Timeline&);
  void step(const StepMetrics&);
  void shares(LoadBalancer&);  // those that are new
  void evaluation(const RunState&, const Evaluation&);
  void before_checkpoint();  // what was written is on the disk
  void checkpoint(std::int64_t step);
  void ended(Exit);

 private:
  MetricsFile metrics_, validations_;
  std::optional<MetricsFile> shares_;
  std::unique_ptr<EventFile> events_;
  const std::int64_t events_every_;
  std::int64_t evaluated_step_;  // the last that TensorBoard knows of
  std::unique_ptr<PrometheusFile> status_;
};

}  // namespace millrace
