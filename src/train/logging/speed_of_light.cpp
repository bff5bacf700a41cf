#include "train/logging/speed_of_light.hpp"

#include <algorithm>
#include <variant>

#include "millrace/config/keys.hpp"
#include "millrace/roofline/passes.hpp"

namespace millrace {
namespace {

constexpr std::int64_t window = 16;  // steps; single ones may seem short where steps overlap

// Without the backward pass of an addition, which may share its gradient and write nothing.
double backward_bound(const Peaks& peaks, const Program& program, int node) {
  const Spec& spec = program.graph().nodes[std::size_t(node)].spec;
  return std::holds_alternative<AddSpec>(spec) ? 0 : peaks.seconds(program.backward_cost(node));
}

double update_bound(const Peaks& peaks, const NetworkSpec& spec, Network& network) {
  const BucketSpec buckets = complete_buckets(spec, network.layout());
  double seconds = 0;
  for (const roofline::Pass& pass :
       roofline::optimizer_passes(complete_optimizer(spec, network.graph(), network.layout(), buckets)))
    seconds += peaks.seconds({pass.flops, pass.bytes});
  return seconds;
}

}  // namespace

SpeedOfLight::SpeedOfLight(Session& s) : s_(s) {
  if (!s.config.log.speed_of_light) return;
  rates_ = machine_rates(s);
  if (known() && s.world.rank() == 0) tracer_ = s.compute.device->make_label_tracer();
}

SpeedOfLight::~SpeedOfLight() = default;

void SpeedOfLight::set_network(Network& network) {
  if (!known() || s_.spec.train_rows.empty()) return;
  const std::int64_t largest = *std::max_element(s_.spec.train_rows.begin(), s_.spec.train_rows.end());
  micro_rows_ = double(largest);
  set_bounds(network.planned_program(largest), true);
  for (const std::int64_t rows : s_.spec.train_rows)
    if (rows != largest) set_bounds(network.planned_program(rows), false);
  traced_ = operations_;
  for (LightStats::Operation& op : traced_) op.seconds = op.least_seconds = 0;
  update_seconds_ = update_bound(rates_.peaks, s_.spec, network);
}

// The programs of other numbers of rows have the same nodes, in the same order.
void SpeedOfLight::set_bounds(const Program& program, bool largest) {
  const auto& nodes = program.graph().nodes;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const Node& node = nodes[n];
    const double forward = rates_.peaks.seconds(program.forward_cost(int(n)));
    const double backward = backward_bound(rates_.peaks, program, int(n));
    if (largest) {
      operations_.push_back({node.name, name_of(node.spec), 0, forward + backward});
      row_seconds_ += (forward + backward) / micro_rows_;
    }
    const std::size_t operation = std::min(n, operations_.size() - 1);
    bounds_[program.label(int(n), NodeWork::forward)] = {operation, forward};
    bounds_[program.label(int(n), NodeWork::backward)] = {operation, backward};
    bounds_[program.label(int(n), NodeWork::recompute)] = {operation, 0};
  }
}

double SpeedOfLight::least_seconds() const {
  if (row_seconds_ <= 0) return 0;
  return (row_seconds_ * double(s_.batching.train_order->rows_of_step(0)) / s_.world.size() + update_seconds_) / scale_;
}

void SpeedOfLight::before_enqueue() {
  const std::int64_t at = enqueued_++ % interval;
  if (!tracer_ || at < first_traced || at >= end_traced) return;
  tracer_->start();
  tracing_ = true;
}

void SpeedOfLight::collect_trace() {
  tracing_ = false;
  ++traced_steps_;
  for (const Activity& a : tracer_->stop()) {
    const auto found = bounds_.find(a.label);
    if (found == bounds_.end()) continue;
    LightStats::Operation& op = traced_[found->second.operation];
    op.seconds += double(a.ended - a.began) * 1e-9;
    op.least_seconds += found->second.seconds;
  }
}

void SpeedOfLight::step(StepMetrics& m) {
  if (tracing_) {
    collect_trace();
    traced_update_seconds_ += m.phase_seconds[std::size_t(Phase::optimizer)];
  }
  if (row_seconds_ <= 0 || m.seconds <= 0) return;
  const double rows = m.samples_per_second * m.seconds;
  const double least = row_seconds_ * rows / s_.world.size() + update_seconds_;
  m.speed_of_light = std::min(1.0, least / scale_ / m.seconds);
  seconds_ += m.seconds;
  least_sum_ += least;
  window_seconds_ += m.seconds;
  window_least_ += least / scale_;
  if (++window_steps_ < window) return;
  scale_ *= std::max(1.0, window_least_ / window_seconds_);
  window_steps_ = 0;
  window_seconds_ = window_least_ = 0;
}

LightStats SpeedOfLight::stats() const {
  LightStats out;
  if (row_seconds_ <= 0 || seconds_ <= 0) return out;
  out.share = std::min(1.0, least_sum_ / scale_ / seconds_);
  out.least_seconds = least_seconds();
  out.optimizer_seconds = update_seconds_ / scale_;
  const double micro_batches = double(s_.batching.train_order->rows_of_step(0)) / micro_rows_ / s_.world.size();
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    LightStats::Operation op = operations_[i];
    op.least_seconds *= micro_batches;
    if (traced_steps_ > 0) {
      op.seconds = traced_[i].seconds / double(traced_steps_);
      op.least_seconds = traced_[i].least_seconds / double(traced_steps_);
    }
    op.least_seconds /= scale_;
    out.operations.push_back(op);
  }
  out.operations.push_back({"optimizer", value_text(s_.config, "optim.name"),
                            traced_steps_ > 0 ? traced_update_seconds_ / double(traced_steps_) : 0,
                            out.optimizer_seconds});
  std::stable_sort(out.operations.begin(), out.operations.end(), [](const auto& a, const auto& b) {
    return std::max(a.seconds, a.least_seconds) > std::max(b.seconds, b.least_seconds);
  });
  return out;
}

}  // namespace millrace
