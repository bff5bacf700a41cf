#include "millrace/train/session/resolved_config.hpp"

#include <fmt/core.h>

#include "millrace/config/keys.hpp"

namespace millrace {
namespace {

std::string codec_of(const io::ChunkedLayout& chunks) {
  std::string out;
  for (const auto& filter : chunks.filters) out += fmt::format("{}{}", out.empty() ? "" : " and ", filter.name);
  return out;
}

void set_machine(ResolvedConfig::Machine& out, const Session& s) {
  out.ranks = s.world.size();
  out.cores = s.placement.cores;
  out.threads = s.placement.compute_threads;
  out.gpu = !s.compute.device->shares_host_memory();
  out.native_bf16 = s.compute.backend->precision_note(DType::bf16).empty();
  out.oversubscribed = s.placement.oversubscribed;
  out.placement_problem = s.placement.warning;
}

void set_input(ResolvedConfig::Input& out, const Session& s) {
  const auto& data = s.config.data;
  out.workers = std::min(s.loader_options().workers, s.data.train_source->max_workers());
  out.prefetch = data.prefetch;
  const std::string reader = s.data.train_source->describe();
  out.reader = reader.substr(0, reader.find_first_of(": "));
  out.shuffle = value_text(s.config, "data.shuffle");
  out.cache = data.cache.where;
  out.chunk_cache = data.chunk_cache;
  out.sample_bytes = s.data.train.sample_bytes();
  out.value_type = name_of(s.data.train.x.dtype);
  out.value_bytes = int(size_of(s.data.train.x.dtype));
  if (!s.data.train.shards.empty())
    if (const auto& chunks = s.data.train.shards.front().x_chunks) {
      out.chunked = true;
      out.chunk_rows = std::int64_t(chunks->chunk[0]);
      out.codec = codec_of(*chunks);
    }
  if (s.data.train.encoded()) out.codec = "JPEG or PNG";
}

void set_training(ResolvedConfig::Training& out, const Session& s) {
  const RunConfig& c = s.config;
  out.global_batch = s.batching.global_batch;
  out.micro_batch = s.batching.micro_batch;
  out.accumulation = s.accumulation();
  out.precision = value_text(c, "run.precision");
  out.zero = s.spec.buckets.sharded();
  out.balanced = c.train.balance != "even";
  out.cuda_graph = c.cuda.graph;
  out.fusion = s.spec.fusion;
  out.max_fusion = s.compute.backend->max_fusion_level();
  out.checkpoint_every = c.checkpoint.every;
  out.needs_evaluations = c.train.patience > 0 || c.optim.schedule == LrSchedule::plateau;
}

}  // namespace

ResolvedConfig resolved_config_of(const Session& s) {
  ResolvedConfig out;
  set_machine(out.machine, s);
  set_input(out.input, s);
  set_training(out.training, s);
  out.communication = {.overlap = s.config.comm.overlap,
                       .grad_dtype = value_text(s.config, "comm.grad_dtype"),
                       .bucket_size = s.config.comm.bucket_size,
                       .nccl = s.compute.collective->describe().starts_with("NCCL"),
                       .nccl_max_ctas = value_text(s.config, "cuda.nccl_max_ctas"),
                       .nccl_cta_policy = value_text(s.config, "cuda.nccl_cta_policy"),
                       .nccl_windows = value_text(s.config, "cuda.nccl_windows")};
  return out;
}

double step_flops(const Session& s, Network& network) {
  double flops = 0;
  for (const MicroBatch& part : s.batching.train_order->share(0, 0, s.world.rank(), s.world.size()))
    for (const auto& node : network.planned_program(part.rows).graph().nodes)
      flops += forward_cost(node.spec).flops + backward_cost(node.spec).flops;
  return flops;
}

}  // namespace millrace
