#include "millrace/train/step/step.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "millrace/base/error.hpp"
#include "millrace/watchdog/watchdog.hpp"
#include "train/step/simulated_compute.hpp"

namespace millrace {

int steps_in_flight(const Device& device) { return device.shares_host_memory() ? 0 : 1; }

void init_loss_scale(const Session& s, Network& network) {
  StepState& state = network.host_state();
  // Gradients that are summed in fp16 need the scale too: they are divided by the global batch, and a rank's part is
  // smaller still, so that many would fall below the smallest fp16 number.
  if (s.spec.compute == DType::f16 || s.spec.grad_dtype == DType::f16) {
    state.scale_on = 1;
    state.loss_scale = float(s.config.optim.loss_scale);
  }
  state.scale_interval = std::uint32_t(s.config.optim.scale_interval);
  network.push_state();
}

StepRunner::StepRunner(Session& s, Network& network, Loader& loader)
    : s_(s),
      network_(network),
      loader_(loader),
      reducer_(*s.compute.collective, *s.compute.backend, s.reducer_spec(network.layout().count, network.buckets()),
               network.gradient, network.grad_16bit),
      timer_(*s.compute.device, *s.compute.collective, timer_spec()),
      capture_partition_(s.capture_partition(s.batching.micro_batch)),
      losses_(graph_of(s.spec, 1, Mode::infer), s.spec.model.own_losses) {
  if (s.config.test.compute_delay > 0 && !s.compute.device->shares_host_memory())
    fail(Exit::config, "test.compute_delay needs the CPU (a GPU does not wait for the host). set run.device = cpu");
  group_.work.reserve(std::size_t(capture_partition_.largest()));
  if (!s.strict()) return;
  const ParameterLayout& layout = network.layout();
  exact_ = std::make_unique<ExactSums>(ExactSum(*s.compute.collective, layout.count),
                                       ExactSum(*s.compute.collective, layout.stats_count), ExactLosses{});
  if (const std::int64_t all = s.batching.train_order->micro_batches(0); all > max_exact_terms)
    fail(Exit::config,
         "run.reproducible: strict sums at most {} micro-batches of a step, but there are {}. raise "
         "train.micro_batch",
         max_exact_terms, all);
}

StepTimerSpec StepRunner::timer_spec() const {
  StepTimerSpec spec;
  spec.max_micro_batches = int(LoadBalancer::max_micro_batches(
      s_.config.train.balance, s_.batching.train_order->micro_batches(0), s_.world.size()));
  if (const WeightAllGather* gather = network_.weight_all_gather())
    for (int wait = 0; wait < gather->waits(); ++wait)
      spec.all_gather_tags.push_back(gather->tag_of(std::size_t(wait)));
  spec.optimizer_waits = network_.optimizer_waits();
  spec.reducer_milestones = reducer_.milestones().size();
  spec.single_rank = s_.world.size() == 1;
  spec.has_input_pass = network_.has_input_pass();
  spec.exchange = s_.compute.exchange.get();
  return spec;
}

void StepRunner::enqueue(std::int64_t step, double learning_rate) {
  const ScopedLabel label(*s_.compute.device, name_step("step ", step));
  const int parity = int(step % 2);
  timer_.begin(parity);
  EnqueuedStep& planned = plan_step(step, learning_rate);
  write_step_state(parity, planned);
  if (network_.weight_all_gather()) network_.gathered();  // the first group begins with the all-gather
  drop_outdated_captures(step);

  const std::int64_t all = s_.batching.train_order->micro_batches(s_.batching.epochs.step_in_epoch(step));
  const int max = int(s_.batching.load_balancer->max_micro_batches(step, all));
  const int min = int(s_.batching.load_balancer->min_micro_batches(step, all));
  loader_.rewind(capture_partition_.first_slot(step, max));
  const bool synchronised = network_.synchronised();
  // With an uneven split, ranks can have different numbers of groups, and then communicate in groups with different
  // numbers. Groups that communicate are not captured in such a step.
  const bool same_groups = synchronised || capture_partition_.groups(max) == capture_partition_.groups(min);
  const int places = std::max(1, synchronised ? max : planned.micro_batches);
  const int groups = capture_partition_.groups(places);
  planned.empty = places - planned.micro_batches;
  for (int g = 0; g < groups; ++g) {
    group_.parity = parity;
    group_.begin = capture_partition_.begin(places, g);
    group_.end = capture_partition_.begin(places, g + 1);
    group_.places = places;
    group_.empty = planned.empty;
    take(std::max(0, group_.end - group_.first_place()));
    const bool communicates = synchronised || g + 1 == groups || (g == 0 && network_.weight_all_gather());
    if (communicates && !same_groups)
      run(group_);
    else
      run_captured(g, groups, planned.rows);
  }
  network_.mark_weights_updated();
}

// The host waits here until the loader's workers have read the samples. Whether they have been copied to the device is
// checked later, by the compute stream: see forward_backward().
void StepRunner::take(int size) {
  group_.work.clear();
  const watchdog::WaitScope waits(watchdog::Wait::file);
  const auto batches = loader_.take(std::size_t(size));
  MR_CHECK(int(batches.size()) == size, "the loader ended too early");
  for (const Batch& batch : batches) {
    const std::size_t number = std::size_t(group_.first()) + group_.work.size();
    const MicroBatch& expected = share_[number];
    MR_CHECK(batch.item.first == expected.first && batch.item.rows == expected.rows, "the loader is out of step");
    // Micro-batches of equal size are consecutive, so the first one after a change of size is the first use of its
    // program.
    const bool repack = number == 0 || expected.rows != share_[number - 1].rows;
    enqueued_[std::size_t(group_.parity)].unread += batch.skipped;
    group_.work.push_back({&network_.step_program(expected.rows), batch, repack});
  }
}

void StepRunner::run_captured(int group, int groups, std::int64_t rows) {
  auto& captured = captured_[{group_.parity, rows, group, group_.work.empty() ? nullptr : group_.work[0].batch.x.data}];
  if (!captured) {
    std::string name = fmt::format("step of {} rows", rows);
    if (groups > 1) name += fmt::format(", part {} of {}", group + 1, groups);
    captured = s_.compute.device->capture(name, [this, group = group_] { run(group); });
  }
  captured->run();
}

void StepRunner::run(const Group& g) {
  if (g.begins_step()) network_.push_step(g.parity);
  if (g.begins_step() && exact_) {
    exact_->gradient.clear();
    exact_->statistics.clear();
    exact_->losses = {};
  }
  if (g.ends_step()) reducer_.begin_step(timer_.reducer_milestones(g.parity));
  for (int place = g.begin; place < g.end; ++place)
    place < g.empty ? run_without_rows(g, place) : forward_backward(g, place - g.empty);
  if (!g.ends_step()) {
    if (network_.synchronised()) s_.compute.collective->finish();  // a captured group waits for what it has begun
    return;
  }
  end_of_step(g);
  network_.copy_state_to_host(g.parity);
}

void StepRunner::forward_backward(const Group& g, int k) {
  using enum StepTimer::Point;
  const MicroBatchWork& work = g.work[std::size_t(k - g.first())];
  const bool first = k == 0;
  const bool last = k + 1 == g.count();
  WeightAllGather* all_gather = first && g.empty == 0 ? network_.weight_all_gather() : nullptr;
  ParamReadyHook* weights_hook = all_gather;
  GradReadyHook* gradient_hook = last && !exact_ ? &reducer_ : nullptr;
  const bool overwrites = first || exact_;
  std::optional<SimulatedCompute> simulated;  // tests only
  if (const double seconds = s_.config.test.compute_delay * double(work.batch.item.rows); seconds > 0)
    simulated.emplace(seconds, network_.layout().count).insert(weights_hook, gradient_hook);

  timer_.record(g.parity, k, handed_over);
  work.batch.wait_until_copied();  // on the compute stream: the copy stream fills the batch's device slot
  timer_.record(g.parity, k, on_device);
  if (all_gather)
    all_gather->begin(timer_.all_gather_waits(g.parity));
  else if (work.repack)
    work.program->repack_weights();
  work.program->forward(work.batch.x, work.batch.y, work.batch.ids, overwrites, weights_hook,
                        first ? timer_.input_pass(g.parity) : TimestampSeries{});
  if (all_gather) all_gather->finish();
  if (simulated) simulated->forward();
  timer_.record(g.parity, k, forward_done);
  if (last && !exact_) {
    all_reduce_statistics();
    all_reduce_loss_weight();
  }
  work.program->backward(overwrites, gradient_hook);
  if (exact_) add_exactly();
  work.batch.record_consumed();  // on the compute stream: the copy stream may now refill the slot
  timer_.record(g.parity, k, backward_done);
}

// In place of a micro-batch: a rank without rows takes part in all communication with zeros.
void StepRunner::run_without_rows(const Group& g, int place) {
  WeightAllGather* all_gather = place == 0 ? network_.weight_all_gather() : nullptr;
  if (all_gather) all_gather->begin(timer_.all_gather_waits(g.parity));
  if (network_.synchronised()) network_.forward_without_rows(all_gather);
  if (all_gather) all_gather->finish();
  const bool last = place + 1 == g.places;
  if (last) timer_.skip_input_pass(g.parity);
  if (last && !exact_) {
    network_.clear_statistics();
    all_reduce_statistics();
    all_reduce_loss_weight();
    network_.synchronised() ? reducer_.clear_gradient() : reducer_.contribute_zeros();
  }
  if (network_.synchronised()) network_.backward_without_rows(last ? &reducer_ : nullptr);
}

void StepRunner::end_of_step(const Group& g) {
  {
    const ScopedLabel label(*s_.compute.device, "end of the gradient all-reduce");
    if (exact_) reduce_exactly();
    reducer_.finish();
    damage_gradient(enqueued_[std::size_t(g.parity)]);
  }
  timer_.record_gradients_reduced(g.parity, g.count());
  {
    const ScopedLabel label(*s_.compute.device, "optimizer");
    if (optimizes_)
      network_.optimizer_step(timer_.optimizer_waits(g.parity));
    else
      timer_.skip_optimizer_waits(g.parity);
  }
  timer_.record_optimizer_done(g.parity, g.count());
}

}  // namespace millrace
