#include "millrace/bench/step.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "millrace/base/error.hpp"
#include "millrace/base/median.hpp"
#include "millrace/telemetry/json_text.hpp"
#include "millrace/train/session/memory_fit.hpp"
#include "millrace/train/session/session.hpp"
#include "millrace/train/step/step.hpp"

namespace millrace {
namespace {

// Measures by timestamps on the compute stream, so delays of the host do not count. Where the host runs ahead of the
// device, one call precedes the first timestamp and several run between the two, so launch overhead does not count
// either.
class StreamTimer {
 public:
  explicit StreamTimer(Device& device)
      : timestamps_(device.make_timestamps(2)), calls_(steps_in_flight(device) == 0 ? 1 : 5), warms_up_(calls_ > 1) {}
  // Seconds of one call.
  template <class F>
  double time(const F& f) {
    if (warms_up_) f();
    timestamps_->record(Stream::compute, 0);
    for (int i = 0; i < calls_; ++i) f();
    timestamps_->record(Stream::compute, 1);
    std::array<double, 2> at;
    timestamps_->read(at);
    return at[1] / calls_;
  }

 private:
  std::unique_ptr<Timestamps> timestamps_;
  int calls_;
  bool warms_up_;
};

// Runs complete steps as training does, with steps in flight, over several epochs if necessary. Two kinds of steps do
// not count: those with fewer samples at the end of an epoch, and the first ones. On a device that captures steps, each
// parity (even and odd steps) runs its first step eagerly and captures its second one.
void measure_complete_steps(Session& s, Network& network, int repeats, StepBench& out) {
  const int lag = steps_in_flight(*s.compute.device);
  const std::int64_t warm_up = lag == 0 ? 1 : 2 * 2 + lag;
  const auto counts = [&](std::int64_t step) {
    return step >= warm_up && s.batching.train_order->rows_of_step(s.batching.epochs.step_in_epoch(step)) ==
                                  s.batching.train_order->rows_of_step(0);
  };
  std::int64_t end = 0;
  // Every other step runs without timestamps, unless steps are captured together with them.
  const int paired = lag == 0 ? 2 : 1;
  for (int counted = 0; counted < paired * repeats; ++end) counted += counts(end);
  Loader loader(*s.compute.device, *s.data.train_source, s.data.train, *s.batching.train_order, s.step_loader_options(),
                s.micro_batches(0, end));
  StepRunner runner(s, network, loader);
  std::vector<double> with_timestamps, without_timestamps;
  std::array<std::vector<double>, phase_count> phases;
  for (std::int64_t issued = 0, collected = 0; collected < end;) {
    if (paired == 2) runner.disable_timestamps(issued % 2 == 1);
    if (issued < end) runner.enqueue(issued++, 1e-4);
    if (issued < end && issued - collected <= lag) continue;
    const StepMetrics m = runner.collect(collected, {}).metrics;
    if (!counts(collected++)) continue;
    if (paired == 2 && collected % 2 == 0) {
      without_timestamps.push_back(m.seconds);
      continue;
    }
    with_timestamps.push_back(m.seconds);
    for (std::size_t p = 0; p < phases.size(); ++p) phases[p].push_back(m.phase_seconds[p]);
  }
  out.full_step_seconds = median(with_timestamps);
  out.without_timestamps_seconds = without_timestamps.empty() ? 0 : median(without_timestamps);
  for (std::size_t p = 0; p < phases.size(); ++p) out.phases[p] = median(phases[p]);
  out.communication_seconds = out.phases[std::size_t(Phase::communication)];
}

// Measures micro-batches, and each of their operations by itself.
void measure_operations(Session& s, Network& network, int repeats, StepBench& out) {
  Device& device = *s.compute.device;
  Loader loader(device, *s.data.train_source, s.data.train, *s.batching.train_order, s.loader_options(),
                s.micro_batches(0, 1));
  const Batch* batch = loader.next();
  if (!batch) fail(Exit::config, "bench: rank {} gets no micro-batch. lower train.micro_batch", s.world.rank());
  network.complete_weights();
  Program& program = network.train_program(batch->item.rows);
  const auto run = [&] {
    program.forward(batch->x, batch->y, batch->ids, true);
    program.backward(true, nullptr);
  };
  run();
  StreamTimer clock(device);
  std::vector<double> times;
  const int nodes = int(program.graph().nodes.size());
  out.ops.resize(std::size_t(nodes));
  for (auto& op : out.ops) op.forward_seconds = op.backward_seconds = 1e30;
  // The measurements alternate, so that a slow moment of the machine affects all of them.
  for (int r = 0; r < repeats; ++r) {
    times.push_back(clock.time(run));
    for (int n = 0; n < nodes; ++n) {
      OpTime& op = out.ops[std::size_t(n)];
      op.forward_seconds = std::min(op.forward_seconds, clock.time([&] { program.run_node(n, false); }));
      op.backward_seconds = std::min(op.backward_seconds, clock.time([&] { program.run_node(n, true); }));
    }
  }
  out.step_seconds = median(times);
  for (int n = 0; n < nodes; ++n) {
    const Node& node = program.graph().nodes[std::size_t(n)];
    OpTime& op = out.ops[std::size_t(n)];
    op.name = node.name;
    op.kind = name_of(node.spec);
    op.implementation = program.op(n).implementation();
    op.forward = program.forward_cost(n);
    op.backward = program.backward_cost(n);
    out.ops_seconds += op.forward_seconds + op.backward_seconds;
    // The input may read a part of the samples, and an addition may share its gradient and write nothing.
    if (!std::holds_alternative<InputSpec>(node.spec)) out.peaks.include(op.forward, op.forward_seconds);
    if (!std::holds_alternative<AddSpec>(node.spec)) out.peaks.include(op.backward, op.backward_seconds);
  }
}

}  // namespace

StepBench bench_step(World& world, const RunConfig& config, int repeats, bool complete_steps) {
  Session s(world, config, Session::Use::train);
  Network network(s.compute, s.spec, plan_within_memory(s));
  StepBench out;
  out.peaks = measure_peaks(s.compute, s.spec.compute);
  if (complete_steps) measure_complete_steps(s, network, repeats, out);
  measure_operations(s, network, repeats, out);
  return out;
}

std::string StepBench::str(bool every) const {
  const std::string line = fmt::format(
      "micro-batch: {:.2f} ms, sum of its operations' best times {:.2f} ms, ratio {:.3f}\ncomplete step with "
      "all-reduce and optimizer: {:.2f} ms, including exposed communication of {:.3f} ms ({:.2f} %)\n",
      step_seconds * 1e3, ops_seconds * 1e3, step_seconds / ops_seconds, full_step_seconds * 1e3,
      communication_seconds * 1e3, 100 * communication_seconds / full_step_seconds);
  std::string out = fmt::format("{}{}", peaks.str(), line);
  if (without_timestamps_seconds > 0) {
    out += fmt::format("every other step, without timestamps: {:.4f} ms; timestamps change this by {:+.2f} %\n",
                       without_timestamps_seconds * 1e3, 100 * (full_step_seconds / without_timestamps_seconds - 1));
  }
  out += "phases of the step, ms:";
  for (std::size_t p = 0; p < phases.size(); ++p) {
    if (phases[p] == 0) continue;
    out += fmt::format(" {} {:.3f}", name_of(Phase(p)), phases[p] * 1e3);
  }
  return fmt::format("{}\n{}", out, table(every));
}

std::string StepBench::table(bool every) const {
  std::string out;
  struct Sum {
    double forward = 0, backward = 0, flops = 0, bytes = 0, bound = 0;
  };
  std::map<std::string, Sum> kinds;
  Sum all;
  for (const OpTime& op : ops)
    for (Sum* s : {&kinds[op.kind], &all}) {
      s->forward += op.forward_seconds;
      s->backward += op.backward_seconds;
      s->flops += op.forward.flops + op.backward.flops;
      s->bytes += op.forward.bytes + op.backward.bytes;
      s->bound += peaks.seconds(op.forward) + peaks.seconds(op.backward);
    }
  kinds["all"] = all;
  out += fmt::format("  {:<26} {:>9} {:>9} {:>10} {:>8} {:>10}\n", "operation", "fwd ms", "bwd ms", "GFLOP/s", "GB/s",
                     "roofline");
  const auto row = [&](const std::string& name, const Sum& s, const std::string& note) {
    const double seconds = s.forward + s.backward;
    out += fmt::format("  {:<26.26} {:9.3f} {:9.3f} {:10.1f} {:8.1f} {:8.0f} %  {:.100}\n", name, s.forward * 1e3,
                       s.backward * 1e3, s.flops / seconds * 1e-9, s.bytes / seconds * 1e-9, 100 * s.bound / seconds,
                       note);
  };
  for (const auto& [kind, s] : kinds) row(kind, s, "");
  std::vector<const OpTime*> listed;
  for (const OpTime& op : ops) listed.push_back(&op);
  if (!every) {
    std::sort(listed.begin(), listed.end(), [](const OpTime* a, const OpTime* b) {
      return a->forward_seconds + a->backward_seconds > b->forward_seconds + b->backward_seconds;
    });
    listed.resize(std::min<std::size_t>(12, listed.size()));
  }
  out += every ? "all operations, in the order of the network:\n" : "the slowest operations:\n";
  for (const OpTime* op : listed)
    row(op->name,
        {op->forward_seconds, op->backward_seconds, op->forward.flops + op->backward.flops,
         op->forward.bytes + op->backward.bytes, peaks.seconds(op->forward) + peaks.seconds(op->backward)},
        op->implementation);
  return out;
}

std::string StepBench::layers_json() const {
  nlohmann::json out;
  out["peaks"] = {{"product_flops", peaks.product_flops},
                  {"convolution_flops", peaks.convolution_flops},
                  {"memory_bytes", peaks.memory_bytes}};
  for (const MemoryRate& measured : peaks.memory_rates)
    out["peaks"]["memory_rates"].push_back({measured.bytes, measured.bytes_per_second});
  for (const OpTime& op : ops)
    out["operations"].push_back({{"name", op.name},
                                 {"kind", op.kind},
                                 {"implementation", op.implementation},
                                 {"forward_ms", op.forward_seconds * 1e3},
                                 {"backward_ms", op.backward_seconds * 1e3},
                                 {"least_ms", (peaks.seconds(op.forward) + peaks.seconds(op.backward)) * 1e3},
                                 {"flops", op.forward.flops + op.backward.flops},
                                 {"bytes", op.forward.bytes + op.backward.bytes}});
  return json_text(out, 1) + "\n";
}

}  // namespace millrace
