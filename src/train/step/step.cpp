#include "millrace/train/step/step.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>

#include "millrace/base/error.hpp"
#include "millrace/train/distributed/buckets.hpp"
#include "train/step/simulated_compute.hpp"

namespace millrace {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

int steps_in_flight(const Device& device) { return device.shares_host_memory() ? 0 : 1; }

void init_loss_scale(const Session& s, Network& network) {
  StepState& state = network.host_state();
  if (s.spec.compute == DType::f16) state.scale_on = 1, state.loss_scale = float(s.config.optim.loss_scale);
  state.scale_interval = std::uint32_t(s.config.optim.scale_interval);
  network.push_state();
}

StepRunner::StepRunner(Session& s, Network& network, Loader& loader)
    : s_(s),
      network_(network),
      loader_(loader),
      reducer_(*s.compute.collective, *s.compute.backend, s.reducer_spec(network.layout().count), network.gradient,
               network.grad_16bit),
      capture_partition_(s.capture_partition(s.micro_batch)) {
  const std::int64_t most = LoadBalancer::most(s.config.train.balance, s.train_order->micro_batches(0), s.world.size());
  const int marks = timestamp_count(int(most)) + timestamp_offset();
  for (auto& m : marks_) m = s.compute.device->make_timestamps(marks);
  times_.resize(std::size_t(marks));
  if (s.config.test.compute_delay > 0 && !s.compute.device->shares_host_memory())
    fail(Exit::config, "test.compute_delay: the device does not wait for the host. set run.device = cpu");
  pace_.ready.resize(reducer_.milestones().size());
  group_.pieces.reserve(std::size_t(capture_partition_.largest()));
}

const char* StepRunner::name_step(const char* what, std::int64_t step) {
  std::snprintf(step_name_.data(), step_name_.size(), "%s%lld", what, (long long)(step + 1));
  return step_name_.data();
}

void StepRunner::end_of_step(int slot, int number) {
  {
    const ScopedLabel here(*s_.compute.device, "the end of sums");
    reducer_.finish();
  }
  record_timestamp(slot, number);
  {
    const ScopedLabel here(*s_.compute.device, "optimizer");
    TimestampSeries marks = wait_timestamps(slot, all_gather_waits());
    if (optimizes_)
      network_.optimizer_step(marks);
    else
      for (int wait = 0; wait < network_.optimizer_waits(); ++wait) marks.record(), marks.record();
  }
  record_timestamp(slot, number + 1);
}

void StepRunner::forward_backward(const Group& g, int number) {
  const MicroBatchWork& piece = g.pieces[std::size_t(number - g.first)];
  const bool first = number == 0, last = number + 1 == g.count;
  WeightAllGather* weight_all_gather = first ? network_.weight_all_gather() : nullptr;
  const int at = 1 + timestamps_per_micro_batch * number;
  GradReadyHook* sink = last ? &reducer_ : nullptr;
  std::optional<SimulatedCompute> simulated_compute;
  if (const double more = s_.config.test.compute_delay * double(piece.batch.item.rows); more > 0)
    sink = &simulated_compute.emplace(more, network_.layout().count, sink, weight_all_gather);
  ParamReadyHook* gate = weight_all_gather;
  if (gate && simulated_compute) gate = &*simulated_compute;
  record_timestamp(g.slot, at);
  piece.batch.begin_use();
  record_timestamp(g.slot, at + 1);
  if (weight_all_gather)
    weight_all_gather->begin(wait_timestamps(g.slot, 0));
  else if (piece.repack)
    piece.program->repack_weights();
  piece.program->forward(piece.batch.x, piece.batch.y, piece.batch.ids, first, gate,
                         first ? timestamps_from(g.slot, input_timestamp()) : TimestampSeries{});
  if (weight_all_gather) weight_all_gather->finish();
  if (simulated_compute) simulated_compute->forward();
  record_timestamp(g.slot, at + 2);
  const std::size_t stats = std::size_t(network_.layout().stats_count);
  if (last && stats && s_.world.size() > 1)
    s_.compute.collective->all_reduce_async(network_.stats, 0, stats, DType::f32, stats_tag);
  piece.program->backward(first, sink);
  piece.batch.end_use();
  record_timestamp(g.slot, at + 3);
}

// A rank without rows in this step joins every sum with zeros.
void StepRunner::run_without_rows(const Group& g) {
  if (WeightAllGather* weight_all_gather = network_.weight_all_gather()) {
    weight_all_gather->begin(wait_timestamps(g.slot, 0));
    weight_all_gather->finish();
  }
  TimestampSeries around_input = timestamps_from(g.slot, input_timestamp());
  around_input.record(), around_input.record();
  network_.clear_statistics();
  const std::size_t stats = std::size_t(network_.layout().stats_count);
  if (stats && s_.world.size() > 1)
    s_.compute.collective->all_reduce_async(network_.stats, 0, stats, DType::f32, stats_tag);
  reducer_.contribute_zeros();
}

void StepRunner::run(const Group& g) {
  const int end = g.first + int(g.pieces.size());
  if (g.first == 0) network_.push_step(g.slot);
  if (end == g.count) reducer_.set_ready_timestamps(wait_timestamps(g.slot, all_waits()));
  if (g.count == 0) run_without_rows(g);
  for (int number = g.first; number < end; ++number) forward_backward(g, number);
  if (end < g.count) return;
  end_of_step(g.slot, 1 + timestamps_per_micro_batch * g.count);
  network_.copy_state_to_host(g.slot);
}

// The host waits here until the workers have read the samples, the device inside the step until it has them.
void StepRunner::take(int slot, int first, int pieces) {
  group_.pieces.clear();
  const auto batches = loader_.take(std::size_t(pieces));
  MR_CHECK(int(batches.size()) == pieces, "the loader has ended too early");
  for (const Batch& batch : batches) {
    const std::size_t number = std::size_t(first) + group_.pieces.size();
    const MicroBatch& expected = share_[number];
    MR_CHECK(batch.item.first == expected.first && batch.item.rows == expected.rows, "the loader is out of step");
    // Those of equal sizes follow one another.
    const bool repack = number == 0 || expected.rows != share_[number - 1].rows;
    enqueued_[std::size_t(slot)].unread += batch.skipped;
    group_.pieces.push_back({&network_.step_program(expected.rows), batch, repack});
  }
}

void StepRunner::enqueue(std::int64_t step, double learning_rate) {
  const ScopedLabel here(*s_.compute.device, name_step("step ", step));
  const std::int64_t epoch = s_.epochs.epoch(step), in_epoch = s_.epochs.step_in_epoch(step);
  const std::int64_t rows = s_.train_order->rows_of_step(in_epoch);
  s_.train_order->share(epoch, in_epoch, s_.balance->part(step), share_);
  const int count = int(share_.size()), slot = int(step % 2);
  EnqueuedStep& issued = enqueued_[std::size_t(slot)];
  issued = {step + 1, epoch, rows,  s_.epochs.samples(step),        learning_rate,
            now(),    0,     count, count > 0 ? share_[0].rows : 0, 0};

  StepState& state = network_.host_state();
  state.learning_rate = float(learning_rate);
  state.row_weight = 1.0f / float(rows);
  state.epoch = std::uint64_t(epoch);
  state.rng_step = state.attempted = std::uint64_t(step);
  state.force_inf = double(step + 1) == s_.config.test.force_overflow_at;
  state.loss_sum = 0, state.top1 = state.top5 = state.counted = 0;
  network_.write_step(slot);

  record_timestamp(slot, 0);
  if (network_.weight_all_gather()) network_.gathered();  // as the step begins
  const std::int64_t all = s_.train_order->micro_batches(in_epoch);
  const int most = int(s_.balance->most(step, all)), least = int(s_.balance->least(step, all));
  if (const std::size_t changes = s_.balance->changes(step); changes != changes_) {
    s_.compute.device->synchronize();  // recordings may be at work
    captured_.clear(), changes_ = changes;
  }
  loader_.rewind(capture_partition_.first_slot(step, most));
  // Where unequal shares make unequal numbers of groups, ranks sum in different ones: those are not recorded.
  const bool alike = capture_partition_.groups(most) == capture_partition_.groups(least);
  const int groups = capture_partition_.groups(count);
  for (int g = 0; g < groups; ++g) {
    const int first = capture_partition_.begin(count, g), size = capture_partition_.begin(count, g + 1) - first;
    group_.slot = slot, group_.first = first, group_.count = count;
    take(slot, first, size);
    const bool sums = g + 1 == groups || (g == 0 && network_.weight_all_gather());
    if (sums && !alike) {
      run(group_);
      continue;
    }
    auto& captured = captured_[{slot, rows, g, size > 0 ? group_.pieces[0].batch.x.data : nullptr}];
    if (!captured)
      captured = s_.compute.device->record(
          groups > 1 ? cat("step of ", rows, " rows, part ", g + 1, " of ", groups) : cat("step of ", rows, " rows"),
          [this, group = group_] { run(group); });
    captured->run();
  }
  network_.mark_weights_updated();
  issued.ended = now();
}

// A sum that stopped the backward pass is no part of it.
void StepRunner::compute_step_timing(const EnqueuedStep& issued, std::size_t marks) {
  pace_.full = issued.rows == s_.train_order->rows_of_step(0);
  pace_.micro_batches = issued.micro_batches;
  pace_.input_pass = 0;
  if (issued.micro_batches == 0) return;
  const auto input = std::size_t(input_timestamp());
  pace_.input_pass = (times_[input + 1] - times_[input]) / double(issued.first_rows);
  const double began = times_[marks - 4], ended = times_[marks - 3];  // of the last backward pass
  const auto without_sums = [&](double until) {
    double seconds = until - began;
    for (const CommSpan& span : spans_)
      if (span.inside && span.op != CollectiveOp::all_gather && span.started - issued.began < until)
        seconds -= span.ended - span.started;
    return std::max(0.0, seconds);
  };
  pace_.last_backward = without_sums(ended);
  for (std::size_t i = 0; i < pace_.ready.size(); ++i)
    pace_.ready[i] = without_sums(times_[1 + 2 * std::size_t(all_waits()) + i]);
}

void StepRunner::move_waits_to_communication(const EnqueuedStep& issued, StepMetrics& m) {
  const auto of = [&m](Phase p) -> double& { return m.phase_seconds[std::size_t(p)]; };
  const auto move = [&of](Phase from, double seconds) { of(from) -= seconds, of(Phase::communication) += seconds; };
  const bool works = issued.micro_batches > 0;  // else all but the optimizer counts as communication already
  waits_.sums = of(Phase::communication), waits_.squares = 0;
  waits_.gathers.assign(std::size_t(all_gather_waits()), 0.0), waits_.gathers_needed = waits_.gathers;
  waits_.began = origin_, waits_.squares_needed = 0;
  const int sums_begin = timestamp_count(issued.micro_batches) - 3;
  waits_.sums_needed = sums_begin > 0 ? times_[std::size_t(sums_begin + timestamp_offset())] : 0;
  for (std::size_t wait = 0; wait < std::size_t(all_waits()); ++wait) {
    const double began = times_[1 + 2 * wait], seconds = times_[2 + 2 * wait] - began;
    if (int(wait) >= all_gather_waits()) {
      if (waits_.squares_needed == 0) waits_.squares_needed = began;
      waits_.squares += seconds, move(Phase::optimizer, seconds);
      continue;
    }
    const auto tag = std::size_t(network_.weight_all_gather()->tag_of(wait));
    waits_.gathers[tag] = seconds, waits_.gathers_needed[tag] = began;
    if (works)
      move(Phase::forward, seconds);
    else
      waits_.sums -= seconds;
  }
  double in_forward = 0, in_backward = 0;  // what stopped them
  for (CommSpan& span : spans_) {
    if (span.started < issued.began) span.inside = false;  // of weights that an evaluation asked for
    if (!span.inside || span.tag == squares_tag) continue;
    (span.op == CollectiveOp::all_gather ? in_forward : in_backward) += span.ended - span.started;
  }
  if (!works) {
    waits_.sums -= in_forward;
    return;
  }
  in_forward = std::min(in_forward, std::max(0.0, of(Phase::forward)));
  in_backward = std::min(in_backward, std::max(0.0, of(Phase::backward)));
  waits_.sums += in_backward;
  move(Phase::forward, in_forward), move(Phase::backward, in_backward);
}

StepResult StepRunner::collect(std::int64_t step, bool wants_stop, bool wants_checkpoint) {
  const ScopedLabel here(*s_.compute.device, name_step("the results of step ", step));
  const int slot = int(step % 2);
  const EnqueuedStep& issued = enqueued_[std::size_t(slot)];
  const StepState& state = network_.read_state(slot);
  double sums[5] = {state.loss_sum, double(state.counted), double(wants_stop), double(wants_checkpoint),
                    double(issued.unread)};
  const double came = now();
  s_.compute.collective->all_reduce_scalars(sums);
  pace_.meeting = s_.world.size() > 1 ? now() - came : 0;

  StepResult out;
  out.step = issued.step;
  out.found_inf = state.found_inf != 0;
  out.at_floor = !state.scale_on || state.loss_scale <= state.scale_floor;
  out.stop = sums[2] > 0;
  out.checkpoint = sums[3] > 0;
  StepMetrics& m = out.metrics;
  m.step = issued.step, m.epoch = issued.epoch, m.samples = issued.samples;
  out.counted = sums[1] > 0;
  m.loss = sums[0] / sums[1];
  m.unread_samples = std::int64_t(sums[4]);
  m.lr = issued.learning_rate;
  m.grad_norm = state.grad_norm;
  m.loss_scale = state.loss_scale;
  m.skipped = out.found_inf;

  const std::size_t marks = std::size_t(timestamp_count(issued.micro_batches)), shift = std::size_t(timestamp_offset());
  if (records_timestamps_)
    marks_[std::size_t(slot)]->read({times_.data(), marks + shift});
  else
    std::fill(times_.begin(), times_.end(), 0.0);
  // The device works on one step after the other, and on none before it has been issued.
  origin_ = std::max(issued.began, origin_ + whole_), whole_ = times_[marks - 1 + shift], last_step_ = issued.step;
  const auto add = [&](Phase phase, std::size_t record_timestamp) {
    m.phase_seconds[std::size_t(phase)] +=
        times_[record_timestamp + shift] - times_[record_timestamp == 1 ? 0 : record_timestamp - 1 + shift];
  };
  for (std::size_t k = 0; k < std::size_t(issued.micro_batches); ++k) {
    add(Phase::data_wait, 1 + timestamps_per_micro_batch * k);
    add(Phase::copy, 2 + timestamps_per_micro_batch * k);
    add(Phase::forward, 3 + timestamps_per_micro_batch * k);
    add(Phase::backward, 4 + timestamps_per_micro_batch * k);
  }
  add(Phase::communication, marks - 2);
  add(Phase::optimizer, marks - 1);
  s_.compute.collective->take_spans(spans_);
  move_waits_to_communication(issued, m);
  compute_step_timing(issued, marks + shift);
  const double at = now();  // of steps in flight at once, each counts from the end of the one before
  m.seconds = at - std::max(issued.began, collected_);
  collected_ = at;
  double inside = 0;
  for (const double seconds : m.phase_seconds) inside += seconds;
  m.phase_seconds[std::size_t(Phase::other)] = std::max(0.0, m.seconds - inside);
  m.samples_per_second = double(issued.rows) / m.seconds;
  return out;
}

}  // namespace millrace
