#include "millrace/roofline/step_time.hpp"

#include <algorithm>

#include "millrace/model/recompute.hpp"
#include "millrace/roofline/cuda_fusion.hpp"

namespace millrace::roofline {
namespace {

void append(std::vector<Pass>& to, const std::vector<Pass>& passes) {
  to.insert(to.end(), passes.begin(), passes.end());
}

// The state goes to the device and back. Each labelled piece of work may begin with a breadcrumb, which is a kernel
// (FlightRecorder); two more mark the begin and the end of the step.
Pass state_pass(int labels, int interval) {
  Pass pass{PassKind::state, Phase::update, "", 0, 0, DType::f32, 2, false};
  if (interval > 0) pass.launches += 2 + labels / interval;
  return pass;
}

int labels_of(const Graph& graph) { return schedule_backward(graph).end_time; }

// An operation with two copies of its weights has one label.
int operations_of(const std::vector<Pass>& repack) {
  int count = 0;
  for (std::size_t i = 0; i < repack.size(); ++i) count += i == 0 || repack[i].node != repack[i - 1].node;
  return count;
}

void add(PassTotal& total, const Pass& pass, const GpuModel& gpu, bool tf32) {
  const double rate = gpu.product_rate(pass.factors, tf32 && !pass.exact);
  const double memory = pass.bytes / gpu.memory_bandwidth, compute = pass.flops / rate;
  const double memory_seconds = memory / gpu.memory_efficiency, compute_seconds = compute / gpu.tensor_efficiency;
  const bool bound_by_memory = memory_seconds >= compute_seconds;
  const double gap = pass.launches * gpu.launch_gap;
  total.launches += pass.launches;
  total.bytes += pass.bytes;
  total.flops += pass.flops;
  total.gap_seconds += gap;
  (bound_by_memory ? total.memory_seconds : total.compute_seconds) += std::max(memory_seconds, compute_seconds);
  total.seconds += std::max(memory_seconds, compute_seconds) + gap;
  total.ideal_seconds += std::max(memory, compute);
}

// The gradient is reduced beside the last micro-batch's backward pass, which leaves at least the last bucket. Weights
// are gathered beside the first forward pass, which waits for at least the first bucket.
double exposed(const TrainingStep& step, const StepTime& time, double link_rate) {
  const Communication& c = step.communication;
  const double micro_batches = std::max(1, step.micro_batch_count());
  const auto beyond = [&](double bytes, double at_least, Phase phase) {
    return std::max(bytes / link_rate - time.phase_seconds[std::size_t(phase)] / micro_batches, at_least / link_rate);
  };
  const double reduce =
      c.overlap ? beyond(c.reduce_bytes, c.last_reduce_bytes, Phase::backward) : c.reduce_bytes / link_rate;
  return reduce + c.update_bytes / link_rate + beyond(c.gather_bytes, c.first_gather_bytes, Phase::forward);
}

}  // namespace

int TrainingStep::micro_batch_count() const {
  int count = 0;
  for (const MicroBatches& m : micro_batches) count += m.count;
  return count;
}

std::vector<Pass> passes_of(const TrainingStep& step, int fusion_level) {
  CudaFusionRules rules;
  std::vector<std::string> unfused;
  std::vector<Pass> out;
  int labels = 2;  // the end of the all-reduce and the optimizer
  bool first = true;
  for (const MicroBatches& m : step.micro_batches) {
    const Graph graph = rewrite(m.graph, rules, fusion_level, unfused);
    const std::vector<Pass> repack = repack_passes(graph);
    append(out, repack);
    labels += operations_of(repack) + m.count * labels_of(graph);
    for (int k = 0; k < m.count; ++k) {
      append(out, micro_batch_passes(graph, first, step.on_chip));
      first = false;
    }
  }
  append(out, step.communication.compute);
  append(out, optimizer_passes(step.optimizer));
  out.push_back(state_pass(labels, step.breadcrumb_interval));
  return out;
}

StepTime predict(const std::vector<Pass>& passes, const TrainingStep& step, const GpuModel& gpu) {
  StepTime out;
  for (const Pass& pass : passes) {
    const double before = out.passes.seconds;
    add(out.kinds[std::size_t(pass.kind)], pass, gpu, step.tf32);
    add(out.passes, pass, gpu, step.tf32);
    out.phase_seconds[std::size_t(pass.phase)] += out.passes.seconds - before;
  }
  const Communication& c = step.communication;
  if (c.collectives == 0 || gpu.nvlink <= 0) return out;
  const double link_rate = gpu.nvlink * gpu.link_efficiency;
  out.link_seconds = (c.reduce_bytes + c.gather_bytes + c.update_bytes) / link_rate;
  out.exposed_seconds = exposed(step, out, link_rate);
  return out;
}

}  // namespace millrace::roofline
