// `millrace plan --gpu`: the step of a run, as the roofline model of a GPU needs it. It has no execution context,
// because the GPU that it describes need not be there.
#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/roofline/cuda_fusion.hpp"
#include "millrace/roofline/step_time.hpp"
#include "millrace/train/commands.hpp"
#include "millrace/train/session/make_compute.hpp"
#include "millrace/train/session/network.hpp"
#include "train/session/network_spec.hpp"

namespace millrace {
namespace {

using roofline::Pass, roofline::PassKind;

Pass conversion(PassKind kind, roofline::Phase phase, double count, DType dtype, int launches) {
  return {kind, phase, "", count * double(sizeof(float) + size_of(dtype)), 0, DType::f32, launches};
}

// As Reducer: each bucket is converted to 16 bits and back. Sharded buckets are reduce-scattered.
void add_reduction(roofline::Communication& out, const NetworkSpec& spec, const BucketSpec& buckets,
                   const ParameterLayout& layout, int ranks) {
  const auto split = buckets.split(layout.count);
  const double others = double(ranks - 1) / ranks, rounds = buckets.sharded() ? 1 : 2;
  const auto sent = [&](const Bucket& b) {
    return rounds * others * double(b.end - b.begin) * double(size_of(spec.grad_dtype));
  };
  for (const Bucket& b : split) out.reduce_bytes += sent(b);
  out.last_reduce_bytes = sent(split.back());
  out.collectives += int(split.size());
  if (layout.stats_count > 0) {
    out.reduce_bytes += 2 * others * double(layout.stats_count) * sizeof(float);
    ++out.collectives;
  }
  if (spec.grad_dtype == DType::f32) return;
  const double count = double(buckets.padded(layout.count));
  out.compute.push_back(
      conversion(PassKind::gradient_conversion, roofline::Phase::backward, count, spec.grad_dtype, int(split.size())));
  out.compute.push_back(conversion(PassKind::gradient_conversion, roofline::Phase::update, count / buckets.ranks,
                                   spec.grad_dtype, buckets.sharded() ? int(split.size()) : 1));
}

// As WeightAllGather: weights that are read as float32 are gathered as such, and then converted.
void add_all_gather(roofline::Communication& out, const NetworkSpec& spec, const BucketSpec& buckets,
                    const ParameterLayout& layout) {
  if (!buckets.sharded()) return;
  const auto split = buckets.split(layout.count);
  const double others = double(buckets.ranks - 1) / buckets.ranks;
  const std::int64_t whole = spec.compute == DType::f32 ? buckets.padded(layout.count) : buckets.whole(layout.count);
  for (const Bucket& b : split) {
    const double count = double(b.end - b.begin);
    const DType dtype = b.begin < whole ? DType::f32 : spec.compute;
    out.first_gather_bytes = others * count * double(size_of(dtype));  // the last one in this order is the first
    out.gather_bytes += out.first_gather_bytes;
    if (dtype != spec.compute)
      out.compute.push_back(conversion(PassKind::weights, roofline::Phase::forward, count, spec.compute, 1));
  }
  out.collectives += int(split.size());
}

roofline::Communication communication(const RunConfig& config, const NetworkSpec& spec, const BucketSpec& buckets,
                                      const ParameterLayout& layout, const OptimizerSpec& optimizer, int ranks) {
  roofline::Communication out;
  if (ranks == 1) return out;
  out.overlap = config.comm.overlap;
  add_reduction(out, spec, buckets, layout, ranks);
  add_all_gather(out, spec, buckets, layout);
  if (!buckets.sharded()) return out;
  const int sums = optimizer.kind == OptimizerSpec::Kind::lamb ? 2 : 1;
  out.update_bytes = sums * 2.0 * (ranks - 1) / ranks * double(square_sum_count(optimizer)) * sizeof(double);
  out.collectives += sums;
  if (!optimizer.gathers_updates()) return out;
  for (const Bucket& b : buckets.with_matrices(layout.count, optimizer)) {
    out.update_bytes += double(ranks - 1) / ranks * double(b.end - b.begin) * sizeof(float);
    ++out.collectives;
  }
  return out;
}

// The micro-batches of rank 0 in a full step. Equal ones that follow each other are counted.
std::vector<roofline::MicroBatches> micro_batches(const NetworkSpec& spec, const Batching& batching, int ranks) {
  std::vector<roofline::MicroBatches> out;
  for (const MicroBatch& m : batching.train_order->share(0, 0, 0, ranks)) {
    if (!out.empty() && out.back().graph.rows == m.rows)
      ++out.back().count;
    else
      out.push_back({graph_of(spec, m.rows, Mode::train), 1});
  }
  if (out.empty()) fail(Exit::config, "train.micro_batch: rank 0 has no samples in a step. lower it");
  return out;
}

int breadcrumb_interval(CudaOptions::Breadcrumbs breadcrumbs) {
  switch (breadcrumbs) {
    case CudaOptions::Breadcrumbs::none:
      return 0;
    case CudaOptions::Breadcrumbs::some:
      return 16;
    case CudaOptions::Breadcrumbs::each:
      break;
  }
  return 1;
}

roofline::StepDescription description(const RunConfig& config, int ranks) {
  roofline::StepDescription out;
  out.network = value_text(config, "model.name");
  out.precision = value_text(config, "run.precision");
  out.ranks = ranks;
  const roofline::CudaFusionRules rules;
  out.level = config.model.fusion < 0 ? rules.default_fusion_level() : config.model.fusion;
  if (out.level > rules.max_fusion_level()) {
    out.notes.push_back("fusion level " + std::to_string(out.level) + " is not supported. level " +
                        std::to_string(rules.max_fusion_level()) + " is used");
    out.level = rules.max_fusion_level();
  }
  if (!config.cuda.graph)
    out.notes.push_back("cuda.graph = off launches each kernel by itself, so the gaps are longer than assumed");
  if (ranks > 1 && config.comm.backend == CudaOptions::CollectiveBackend::mpi)
    out.notes.push_back("comm.backend = mpi moves gradients through host memory, which takes longer than NVLink");
  return out;
}

batch_norm::OnChipMemory on_chip_memory(const roofline::GpuModel& gpu, int ranks) {
  if (ranks > 1) fail(Exit::config, "cuda.persistent_norm: works with one rank only. switch it off");
  if (gpu.multiprocessors <= 0 || gpu.shared_memory <= 0)
    fail(Exit::config, "cuda.persistent_norm: the description of {} gives no multiprocessors and shared_memory",
         gpu.name);
  return {int(gpu.multiprocessors), std::int64_t(gpu.shared_memory)};
}

}  // namespace

std::string describe_gpu_step(World& world, const RunConfig& config, const roofline::GpuModel& gpu, bool json) {
  require_data(config, true);
  if (config.run.reproducible == Reproducible::strict)
    fail(Exit::config, "run.reproducible: strict works on the CPU only. leave it out with --gpu");
  const DataSets data = index_data_sets(world, config, true, nullptr);
  const Batching batching = make_batching(world, config, true, data);
  const NetworkSpec spec = network_spec(world, config, true, data, batching);
  const int ranks = world.size();
  roofline::TrainingStep step;
  step.micro_batches = micro_batches(spec, batching, ranks);
  const Graph& graph = step.micro_batches.front().graph;
  const ParameterLayout layout(graph);
  const BucketSpec buckets = complete_buckets(spec, layout);
  step.optimizer = complete_optimizer(spec, graph, layout, buckets);
  step.communication = communication(config, spec, buckets, layout, step.optimizer, ranks);
  step.breadcrumb_interval = breadcrumb_interval(config.cuda.breadcrumbs);
  step.global_batch = batching.global_batch;
  step.tf32 = config.cuda.tf32;
  if (config.cuda.persistent_norm) step.on_chip = on_chip_memory(gpu, ranks);
  const roofline::StepDescription about = description(config, ranks);
  return json ? roofline::report_json(step, about, gpu) : roofline::report(step, about, gpu);
}

}  // namespace millrace
