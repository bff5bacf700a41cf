#include "millrace/train/session/resolved_config.hpp"

#include "millrace/config/keys.hpp"

namespace millrace {
namespace {

std::string codec_of(const io::ChunkedLayout& chunks) {
  std::string out;
  for (const auto& filter : chunks.filters) out += cat(out.empty() ? "" : " and ", filter.name);
  return out;
}

}  // namespace

ResolvedConfig resolved_config_of(const Session& s) {
  const RunConfig& c = s.config;
  ResolvedConfig out;
  out.ranks = s.world.size();
  out.workers = std::min(s.loader_options().workers, s.data.train_source->max_workers());
  out.cores = s.placement.cores, out.threads = s.placement.compute_threads;
  out.prefetch = c.data.prefetch, out.accumulation = s.accumulation();
  out.gpu = !s.compute.device->shares_host_memory(), out.graph = c.cuda.graph, out.overlap = c.comm.overlap;
  out.zero = c.optim.zero > 0;
  out.balanced = c.train.balance != "even";
  out.half = s.compute.backend->precision_note(DType::bf16).empty();
  if (!s.data.train.shards.empty())
    if (const auto& chunks = s.data.train.shards.front().x_chunks)
      out.chunked = true, out.chunk_rows = std::int64_t(chunks->chunk[0]), out.stored = codec_of(*chunks);
  if (s.data.train.encoded()) out.stored = "JPEG or PNG";
  out.of_values = name_of(s.data.train.x.dtype), out.value_bytes = int(size_of(s.data.train.x.dtype));
  out.fusion = s.spec.fusion, out.most_fusion = s.compute.backend->max_fusion_level();
  const std::string reader = s.data.train_source->describe();
  out.reader = reader.substr(0, reader.find_first_of(": "));
  out.precision = value_text(c, "run.precision");
  out.grad_dtype = value_text(c, "comm.grad_dtype");
  out.shuffle = value_text(c, "data.shuffle");
  out.cache = c.data.cache.where, out.checkpoint_every = c.checkpoint.every;
  out.misplaced = s.placement.warning, out.oversubscribed = s.placement.oversubscribed;
  out.bucket = c.comm.bucket_size, out.chunk_cache = c.data.chunk_cache, out.sample_bytes = s.data.train.sample_bytes();
  out.global_batch = s.batching.global_batch, out.micro_batch = s.batching.micro_batch;
  return out;
}

double step_flops(const Session& s, Network& network) {
  double flops = 0;
  for (const MicroBatch& part : s.batching.train_order->share(0, 0, s.world.rank(), s.world.size()))
    for (const auto& node : network.train_program(part.rows).graph().nodes)
      flops += forward_cost(node.spec).flops + backward_cost(node.spec).flops;
  return flops;
}

}  // namespace millrace
