#include "step.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Marks of a step: 0 begin; then batch ready, forward done, backward done for each micro-batch; then sums done,
// optimizer done.
int mark_count(int micro_batches) { return 1 + 3 * micro_batches + 2; }

int most_micro_batches(const Session& s) {
  int most = 0;
  for (std::int64_t step : {std::int64_t(0), s.epochs.steps_each() - 1})
    for (int rank = 0; rank < s.world.size(); ++rank)
      most = std::max(most, int(s.train_order->share(0, step, rank, s.world.size()).size()));
  return most;
}

}  // namespace

StepRunner::StepRunner(Session& s, Network& network, Loader& loader)
    : s_(s),
      network_(network),
      loader_(loader),
      reducer_(*s.compute.collective, *s.compute.backend, s.reducer_spec(network.layout().count), network.gradient,
               network.packed) {
  const int marks = mark_count(most_micro_batches(s)) + waits();
  for (auto& m : marks_) m = s.compute.device->make_marks(marks);
  times_.resize(std::size_t(marks));
}

const char* StepRunner::name_step(const char* what, std::int64_t step) {
  std::snprintf(step_name_.data(), step_name_.size(), "%s%lld", what, (long long)(step + 1));
  return step_name_.data();
}

void StepRunner::end_of_step(int slot, int number) {
  {
    const Working here(*s_.compute.device, "the end of sums");
    reducer_.finish();
  }
  mark(slot, number);
  {
    const Working here(*s_.compute.device, "optimizer");
    network_.optimizer_step(wait_marks(slot, gather_waits()));
  }
  mark(slot, number + 1);
}

void StepRunner::micro_batch(const Batch& batch, int slot, std::size_t number, std::size_t count, bool even) {
  const std::int64_t rows = batch.item.rows;
  const bool first = number == 0, last = number + 1 == count;
  Gatherer* gatherer = first ? network_.gatherer() : nullptr;
  Program& program = gatherer ? network_.gathering_program(rows) : network_.train_program(rows);
  const int at = 1 + 3 * int(number);
  mark(slot, at);
  // What is recorded runs once and is replayed from then on: it holds by value, or by reference what lives as long as
  // the runner, and changes nothing on the host that a later step would need to see.
  const Tensor x = batch.x, y = batch.y, ids = batch.ids;
  const auto work = [this, &program, gatherer, x, y, ids, slot, at, first, last] {
    if (gatherer) gatherer->begin(wait_marks(slot, 0));
    program.forward(x, y, ids, first, gatherer);
    if (gatherer) gatherer->finish();
    mark(slot, at + 1);
    const std::size_t stats = std::size_t(network_.layout().stats_count);
    if (last && stats && s_.world.size() > 1)
      s_.compute.collective->begin_sum(network_.stats, 0, stats, DType::f32, stats_tag);
    program.backward(first, last ? &reducer_ : nullptr);
    mark(slot, at + 2);
    if (last) end_of_step(slot, at + 3);
  };
  if ((last || gatherer) && !even) return work();  // what ranks do together is recorded by all or by none
  auto& recorded = recorded_[{rows, slot, number, count, x.data}];
  if (!recorded)
    recorded = s_.compute.device->record(cat("micro-batch ", number + 1, " of ", count, ", ", rows, " rows"), work);
  recorded->run();
}

void StepRunner::enqueue(std::int64_t step, double learning_rate) {
  const Working here(*s_.compute.device, name_step("step ", step));
  const std::int64_t epoch = s_.epochs.epoch(step), in_epoch = s_.epochs.step_in_epoch(step);
  const std::int64_t rows = s_.train_order->rows_of_step(in_epoch);
  const auto& share = share_;
  s_.train_order->share(epoch, in_epoch, s_.world.rank(), s_.world.size(), share_);
  Issued& issued = issued_[std::size_t(step % 2)];
  issued = {step + 1, epoch, rows, s_.epochs.samples(step), learning_rate, now(), 0, int(share.size()), 0};

  StepState& state = network_.host_state();
  state.learning_rate = float(learning_rate);
  state.row_weight = 1.0f / float(rows);
  state.epoch = std::uint64_t(epoch);
  state.rng_step = state.attempted = std::uint64_t(step);
  state.force_inf = double(step + 1) == s_.config.train.test_force_overflow_at;
  state.loss_sum = 0, state.top1 = state.top5 = state.counted = 0;
  const int slot = int(step % 2);
  network_.push_step(slot);

  mark(slot, 0);
  const bool even = s_.train_order->even(in_epoch, s_.world.size());
  for (std::size_t m = 0; m < share.size(); ++m) {
    const Batch* batch = loader_.next();
    MR_CHECK(batch && batch->item.first == share[m].first && batch->item.rows == share[m].rows,
             "the loader is out of step");
    micro_batch(*batch, slot, m, share.size(), even);
  }
  if (share.empty()) {  // a rank without rows in this step joins every sum with zeros
    network_.gather_weights(wait_marks(slot, 0));
    network_.clear_statistics();
    const std::size_t stats = std::size_t(network_.layout().stats_count);
    if (stats && s_.world.size() > 1) s_.compute.collective->begin_sum(network_.stats, 0, stats, DType::f32, stats_tag);
    reducer_.contribute_zeros();
    end_of_step(slot, 1);
  }
  if (!even) loader_.rewind();
  network_.stepped();
  network_.record_state(slot);
  issued.ended = now();
}

StepResult StepRunner::collect(std::int64_t step, bool wants_stop, bool wants_checkpoint) {
  const Working here(*s_.compute.device, name_step("the results of step ", step));
  const int slot = int(step % 2);
  const Issued& issued = issued_[std::size_t(slot)];
  const StepState& state = network_.read_state(slot);
  double sums[4] = {state.loss_sum, double(state.counted), double(wants_stop), double(wants_checkpoint)};
  s_.compute.collective->small_sum(sums);

  StepResult out;
  out.step = issued.step;
  out.found_inf = state.found_inf != 0;
  out.at_floor = !state.scale_on || state.loss_scale <= state.scale_floor;
  out.stop = sums[2] > 0;
  out.checkpoint = sums[3] > 0;
  StepMetrics& m = out.metrics;
  m.step = issued.step, m.epoch = issued.epoch, m.samples = issued.samples;
  m.loss = sums[0] / sums[1];
  m.lr = issued.learning_rate;
  m.grad_norm = state.grad_norm;
  m.loss_scale = state.loss_scale;
  m.skipped = out.found_inf;

  const std::size_t marks = std::size_t(mark_count(issued.micro_batches)), shift = std::size_t(waits());
  marks_[std::size_t(slot)]->read({times_.data(), marks + shift});
  const auto add = [&](Phase phase, std::size_t mark) {
    m.phase_seconds[std::size_t(phase)] += times_[mark + shift] - times_[mark == 1 ? 0 : mark - 1 + shift];
  };
  for (std::size_t k = 0; k < std::size_t(issued.micro_batches); ++k) {
    add(Phase::data_wait, 1 + 3 * k);
    add(Phase::forward, 2 + 3 * k);
    add(Phase::backward, 3 + 3 * k);
  }
  add(Phase::communication, marks - 2);
  add(Phase::optimizer, marks - 1);
  for (std::size_t wait = 0; wait < shift / 2; ++wait) {  // of a phase that computes
    const bool gather = int(wait) < gather_waits();
    if (gather && issued.micro_batches == 0) continue;  // counted as communication already
    const double seconds = times_[2 + 2 * wait] - times_[1 + 2 * wait];
    m.phase_seconds[std::size_t(gather ? Phase::forward : Phase::optimizer)] -= seconds;
    m.phase_seconds[std::size_t(Phase::communication)] += seconds;
  }
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
