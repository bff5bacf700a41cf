#include "millrace/train/step/step_timer.hpp"

#include <algorithm>

#include "millrace/base/clock.hpp"
#include "millrace/train/distributed/buckets.hpp"

namespace millrace {

StepTimer::StepTimer(Device& device, Collective& collective, StepTimerSpec spec)
    : device_(device), collective_(collective), spec_(std::move(spec)) {
  const int count = optimizer_done(spec_.max_micro_batches) + 1;
  for (auto& timestamps : timestamps_) timestamps = device.make_timestamps(count);
  times_.resize(std::size_t(count));
  timing_.ready.resize(spec_.reducer_milestones);
}

void StepTimer::record(int parity, int number) {
  if (enabled_) timestamps_[std::size_t(parity)]->record(Stream::compute, number);
}

void StepTimer::begin(int parity) {
  began_[std::size_t(parity)] = steady_seconds();
  record(parity, 0);
}

void StepTimer::record(int parity, int micro_batch, Point p) { record(parity, number_of(micro_batch, p)); }

void StepTimer::record_gradients_reduced(int parity, int micro_batches) {
  record(parity, gradients_reduced(micro_batches));
}

void StepTimer::record_optimizer_done(int parity, int micro_batches) { record(parity, optimizer_done(micro_batches)); }

void StepTimer::skip_input_pass(int parity) {
  TimestampSeries around = input_pass(parity);
  around.record();
  around.record();
}

void StepTimer::skip_optimizer_waits(int parity) {
  TimestampSeries waits = optimizer_waits(parity);
  for (int i = 0; i < 2 * spec_.optimizer_waits; ++i) waits.record();
}

void StepTimer::begin_sync_wait() { sync_began_ = steady_seconds(); }

void StepTimer::end_sync_wait() { timing_.sync_wait = spec_.single_rank ? 0 : steady_seconds() - sync_began_; }

void StepTimer::finish(int parity, const EnqueuedStep& step, StepMetrics& m) {
  step_ = step;
  enqueue_began_ = began_[std::size_t(parity)];
  read_timestamps(parity);
  add_phases(m);
  collective_.take_spans(comm_spans_);
  if (spec_.exchange) {
    spec_.exchange->take_spans(exchange_spans_);
    comm_spans_.insert(comm_spans_.end(), exchange_spans_.begin(), exchange_spans_.end());
  }
  move_waits_to_communication(m);
  compute_timing();
  const double ended = steady_seconds();
  // Steps in flight overlap, so a step counts from the end of the previous one.
  m.seconds = ended - std::max(enqueue_began_, finished_);
  finished_ = ended;
  double measured = 0;
  for (const double seconds : m.phase_seconds) measured += seconds;
  m.phase_seconds[std::size_t(Phase::other)] = std::max(0.0, m.seconds - measured);
  m.samples_per_second = double(step.rows) / m.seconds;
}

void StepTimer::read_timestamps(int parity) {
  const int last = optimizer_done(step_.micro_batches);
  if (enabled_)
    timestamps_[std::size_t(parity)]->read({times_.data(), std::size_t(last + 1)});
  else
    std::fill(times_.begin(), times_.end(), 0.0);
  // The device begins a step when the previous one is done, but not before the host has begun to enqueue it.
  device_began_ = std::max(enqueue_began_, device_began_ + device_seconds_);
  device_seconds_ = time(last);
}

void StepTimer::add_phases(StepMetrics& m) const {
  const auto add = [&](Phase phase, int number) {
    m.phase_seconds[std::size_t(phase)] += time(number) - time(previous(number));
  };
  for (int k = 0; k < step_.micro_batches; ++k) {
    add(Phase::data_wait, number_of(k, Point::handed_over));
    add(Phase::copy, number_of(k, Point::on_device));
    add(Phase::forward, number_of(k, Point::forward_done));
    add(Phase::backward, number_of(k, Point::backward_done));
  }
  add(Phase::communication, gradients_reduced(step_.micro_batches));
  add(Phase::optimizer, optimizer_done(step_.micro_batches));
}

// Waits for other ranks happen inside the phases that compute. This moves them from there to communication. In a step
// without rows, communication already contains all waits except those of the optimizer.
void StepTimer::move_waits_to_communication(StepMetrics& m) {
  const auto seconds_of = [&m](Phase p) -> double& { return m.phase_seconds[std::size_t(p)]; };
  const auto move = [&](Phase from, double seconds) {
    seconds_of(from) -= seconds;
    seconds_of(Phase::communication) += seconds;
  };
  const bool has_rows = step_.micro_batches > 0;
  waits_.began = device_began_;
  waits_.sums = seconds_of(Phase::communication);
  waits_.sums_needed = has_rows ? time(number_of(step_.micro_batches - 1, Point::backward_done)) : 0;
  waits_.squares = 0;
  waits_.squares_needed = 0;
  waits_.gathers.assign(std::size_t(all_gathers()), 0.0);
  waits_.gathers_needed.assign(std::size_t(all_gathers()), 0.0);
  for (int wait = 0; wait < waits_count(); ++wait) {
    const double began = time(1 + 2 * wait);
    const double seconds = time(2 + 2 * wait) - began;
    if (wait >= all_gathers()) {
      if (waits_.squares_needed == 0) waits_.squares_needed = began;
      waits_.squares += seconds;
      move(Phase::optimizer, seconds);
      continue;
    }
    const auto tag = std::size_t(spec_.all_gather_tags[std::size_t(wait)]);
    waits_.gathers[tag] = seconds;
    waits_.gathers_needed[tag] = began;
    if (has_rows)
      move(step_.empty > 0 ? Phase::data_wait : Phase::forward, seconds);
    else
      waits_.sums -= seconds;
  }
  move_blocking_spans_to_communication(m);
}

// An operation that ran inside the call that started it has blocked the pass that made the call. So have the exchanges
// of norms. Those of micro-batches without rows come before the first batch.
void StepTimer::move_blocking_spans_to_communication(StepMetrics& m) {
  double in_forward = 0, in_backward = 0, sums = 0, norms = 0, before_rows = 0;
  for (CommSpan& span : comm_spans_) {
    if (span.started < enqueue_began_) span.blocking = false;  // an all-gather for an evaluation before this step
    if (!span.blocking || is_optimizer_tag(span.tag)) continue;
    const double seconds = span.ended - span.started;
    if (is_norm_tag(span.tag)) norms += seconds;
    if (span.tag == norm_without_rows_tag)
      before_rows += seconds;
    else if (span.tag == norm_backward_tag)
      in_backward += seconds;
    else if (span.op == CollectiveOp::all_gather)
      in_forward += seconds;
    else
      sums += seconds;
  }
  if (step_.micro_batches == 0) {
    waits_.sums -= std::min(waits_.sums, in_forward + norms);
    return;
  }
  const auto move = [&m](Phase from, double seconds) {
    double& phase = m.phase_seconds[std::size_t(from)];
    seconds = std::min(seconds, std::max(0.0, phase));
    phase -= seconds;
    m.phase_seconds[std::size_t(Phase::communication)] += seconds;
    return seconds;
  };
  move(Phase::data_wait, before_rows);
  move(Phase::forward, in_forward);
  move(Phase::backward, in_backward);
  waits_.sums += move(Phase::backward, sums);
}

// Seconds from the start of the last backward pass until `until`, without the all-reduces that blocked it.
double StepTimer::compute_seconds(double until) const {
  const double began = time(number_of(step_.micro_batches - 1, Point::forward_done));
  double seconds = until - began;
  for (const CommSpan& span : comm_spans_) {
    const double started = span.started - enqueue_began_;
    const bool in_backward = span.tag == norm_backward_tag ? started >= began : span.op != CollectiveOp::all_gather;
    if (span.blocking && in_backward && started < until) seconds -= span.ended - span.started;
  }
  return std::max(0.0, seconds);
}

void StepTimer::compute_timing() {
  timing_.full = step_.full;
  timing_.micro_batches = step_.micro_batches;
  timing_.input_pass = 0;
  if (step_.micro_batches == 0) return;
  if (spec_.has_input_pass)
    timing_.input_pass = (time(input_begin() + 1) - time(input_begin())) / double(step_.first_rows);
  timing_.last_backward = compute_seconds(time(number_of(step_.micro_batches - 1, Point::backward_done)));
  for (std::size_t i = 0; i < timing_.ready.size(); ++i)
    timing_.ready[i] = compute_seconds(time(milestones_begin() + int(i)));
}

void StepTimer::append_phase_spans(std::vector<Span>& out) const {
  const auto at = [this](int number) { return device_began_ + (number == 0 ? 0.0 : time(number)); };
  const auto add = [&](Phase phase, int number) {
    const double began = at(previous(number));
    out.push_back({"step", name_of(phase), began, std::max(began, at(number))});
  };
  const int last = optimizer_done(step_.micro_batches);
  out.push_back({"step", "step " + std::to_string(step_.number), at(0), at(last), {{"step", double(step_.number)}}});
  for (int k = 0; k < step_.micro_batches; ++k) {
    add(Phase::data_wait, number_of(k, Point::handed_over));
    if (!device_.shares_host_memory()) add(Phase::copy, number_of(k, Point::on_device));
    add(Phase::forward, number_of(k, Point::forward_done));
    add(Phase::backward, number_of(k, Point::backward_done));
  }
  add(Phase::communication, gradients_reduced(step_.micro_batches));
  add(Phase::optimizer, last);
  for (int wait = 0; wait < waits_count(); ++wait)  // these lie inside a phase that computes
    if (wait >= all_gathers() || step_.micro_batches > 0) {
      const double began = device_began_ + time(1 + 2 * wait);
      out.push_back(
          {"step", name_of(Phase::communication), began, std::max(began, device_began_ + time(2 + 2 * wait))});
    }
}

}  // namespace millrace
