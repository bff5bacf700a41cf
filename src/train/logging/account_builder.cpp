#include "train/logging/account_builder.hpp"

#include <numeric>

#include "millrace/system/process.hpp"
#include "millrace/train/session/resolved_config.hpp"

namespace millrace {

AccountBuilder::AccountBuilder(Session& s) : s_(s), before_(process_stats()) {
  mine_.host = s.world.host();
  mine_.cores = s.placement.cores;
  mine_.threads = s.placement.compute_threads;
  mine_.memory_limit = double(s.memory_bytes());
  mine_.network_link = fastest_network_link();
}

void AccountBuilder::step(const StepMetrics& m, const StepTimer& timer) {
  ++mine_.steps;
  steps_.add(m.seconds);
  sums_.add(timer.comm_spans(), timer.waits());
  pace_.add(m, timer.timing());
  mine_.skipped_steps += m.skipped;
  if (s_.spec.compute == DType::f16) mine_.scales.add(m.step, m.loss_scale);
}

RankAccount AccountBuilder::stats(Network& network, const LoaderStats& loader, int device_timestamps,
                                  const std::vector<std::int64_t>& milestones) const {
  RankAccount out = mine_;
  out.loader = loader;
  out.comm_busy_seconds = sums_.busy_seconds();
  out.comm_bytes = sums_.bytes();
  out.sums = sums_.stats();
  out.step_times = steps_.stats();
  out.process = process_stats().since(before_);
  out.memory_bytes = network.needs().total() + network.needs().program;
  if (out.steps == 0) return out;
  out.flops = step_flops(s_, network);
  out.pace = pace_.stats();
  const bool gpu = !s_.compute.device->shares_host_memory();
  out.pace.samples = double(s_.batching.train_order->rows_of_step(0));
  out.pace.stats_bytes = std::uint64_t(network.layout().stats_count) * sizeof(float);
  out.pace.beside = gpu || s_.progress_thread();
  out.pace.meets = steps_in_flight(*s_.compute.device) == 0;
  for (std::size_t i = 0; i < out.pace.ready.size() && i < milestones.size(); ++i)
    out.pace.ready[i].bytes = std::uint64_t(milestones[i]) * sizeof(float);
  // Timestamps per step: of the device, of the training loop and of the loader, and three for each collective operation
  // (queued, started, ended).
  constexpr double of_loop = 10;
  const double spans = std::accumulate(out.sums.begin(), out.sums.end(), 0.0,
                                       [](double n, const CollectiveOpStats& s) { return n + double(s.times); });
  out.marks = device_timestamps + of_loop + (double(loader.clock_reads) + 3 * spans) / double(out.steps);
  out.mark_seconds = timestamp_cost();
  return out;
}

}  // namespace millrace
