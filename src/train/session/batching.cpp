#include "millrace/train/session/batching.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"

namespace millrace {
namespace {

// The load balancer moves whole micro-batches between ranks, so each rank needs several.
constexpr std::int64_t micro_batches_for_balance = 8;
// run.reproducible = strict: as many ranks can share a step.
constexpr std::int64_t strict_micro_batches = 8;

std::int64_t default_micro_batch(const World& world, const TrainOptions& c, std::int64_t global_batch) {
  const std::int64_t even = (global_batch + world.size() - 1) / world.size();
  const bool balanced = c.balance != "even" && world.size() > 1;
  return balanced ? std::max<std::int64_t>(1, even / micro_batches_for_balance) : even;
}

void set_batch_sizes(World& world, const RunConfig& config, const DataSets& data, Batching& out) {
  const TrainOptions& c = config.train;
  if (c.global_batch < 1) fail(Exit::config, "train.global_batch: {} is below 1", c.global_batch);
  out.global_batch = data.has_train ? std::min(c.global_batch, data.train.selected_rows()) : c.global_batch;
  const bool strict = config.run.reproducible == Reproducible::strict;
  if (c.micro_batch > 0)
    out.micro_batch = std::min(c.micro_batch, out.global_batch);
  else
    out.micro_batch = strict ? (out.global_batch + strict_micro_batches - 1) / strict_micro_batches
                             : default_micro_batch(world, c, out.global_batch);
  if ((out.global_batch + out.micro_batch - 1) / out.micro_batch < world.size())
    log::warn(
        fmt::format("train.global_batch = {} gives fewer micro-batches of {} samples than there are ranks ({}), so "
                    "some ranks have nothing to do. {}",
                    out.global_batch, out.micro_batch, world.size(),
                    out.global_batch < world.size() ? "raise train.global_batch, or start fewer ranks"
                                                    : "lower train.micro_batch"));
}

void set_train_order(const RunConfig& config, const ShardIndex& train, Batching& out) {
  const DataConfig& c = config.data;
  if (c.shuffle != Shuffle::block && (c.shuffle_window > 0 || c.shuffle_block > 0))
    fail(Exit::config,
         "data.shuffle_window and data.shuffle_block have no effect without data.shuffle = block. remove them, or set "
         "data.shuffle = block");
  if (c.shuffle == Shuffle::block) {
    out.blocks = block_shuffle(train, c.shuffle_block, c.shuffle_window, c.chunk_cache);
    if (!out.blocks->problem.empty()) log::warn(out.blocks->problem);
    out.train_order = std::make_unique<Sampler>(
        out.global_batch, out.micro_batch, std::make_shared<const BlockOrder>(out.blocks->layout, config.run.seed));
    out.train_order->select(train.selection);
    return;
  }
  out.train_order = std::make_unique<Sampler>(train.selected_rows(), out.global_batch, out.micro_batch, config.run.seed,
                                              c.shuffle == Shuffle::global);
  out.train_order->select(train.selection);
}

}  // namespace

Batching make_batching(World& world, const RunConfig& config, bool training, const DataSets& data) {
  Batching out;
  set_batch_sizes(world, config, data, out);
  if (training) {
    set_train_order(config, data.train, out);
    out.epochs = {data.train.selected_rows(), out.global_batch, {}};
    const std::int64_t micro_batches = out.train_order->micro_batches(0);
    out.load_balancer = std::make_unique<LoadBalancer>(world, config.train.balance, micro_batches);
    if (config.train.balance == "auto" && world.size() > 1 && micro_batches <= world.size())
      log::warn(
          fmt::format("train.balance: each rank has at most one micro-batch of {} samples per step, so no work can "
                      "move between ranks. lower train.micro_batch",
                      out.micro_batch));
  }
  if (data.has_valid) {
    out.valid_order = std::make_unique<Sampler>(data.valid.selected_rows(), out.micro_batch * world.size(),
                                                out.micro_batch, 0, false);
    out.valid_order->select(data.valid.selection);
  }
  return out;
}

}  // namespace millrace
