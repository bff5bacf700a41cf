// Session: a RunConfig resolved against the data and the ranks: indexes, samplers, the network's spec, the memory. Made
// by train, eval and plan alike, so that all three speak of the same run.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "millrace/config/schedule.hpp"
#include "millrace/data/load/block_order.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/train/distributed/load_balancer.hpp"
#include "millrace/train/distributed/reducer.hpp"
#include "millrace/train/session/capture_partition.hpp"
#include "millrace/train/session/epochs.hpp"
#include "millrace/train/session/make_compute.hpp"
#include "millrace/train/session/network.hpp"

namespace millrace {

DType dtype_of(Precision);

struct Session {
  enum class Use { train, evaluate };
  Session(World&, const RunConfig&, Use);

  World& world;
  const RunConfig& config;
  Use use;
  Placement placement;
  ExecutionContext compute;
  ShardIndex train_data, valid_data;
  bool has_valid = false;
  std::int64_t global_batch = 0, micro_batch = 0;
  Epochs epochs;  // of training; a resumed run sets its origin
  std::unique_ptr<Sampler> train_order, valid_order;
  std::unique_ptr<LoadBalancer> balance;  // of training: whose part of a step is how large
  std::optional<BlockShuffle> blocks;     // of training, with data.shuffle = block
  NetworkSpec spec;
  std::unique_ptr<Source> train_source, valid_source;

  LoaderOptions loader_options() const;                                // for one batch after the other
  LoaderOptions step_loader_options() const;                           // for training: batches of a group at once
  CapturePartition capture_partition(std::int64_t micro_batch) const;  // of the steps of training
  std::int64_t total_steps() const;                                    // by train.steps or train.epochs
  // What the network of micro-batches of so many rows needs, loaders included. Takes nothing.
  NetworkPlan plan(std::int64_t rows) const;
  std::size_t memory_bytes() const;  // that this rank may plan with
  // This rank's micro-batches of steps [from, to), one at each call, then none.
  std::function<std::optional<MicroBatch>()> micro_batches(std::int64_t from, std::int64_t to) const;
  int accumulation() const;  // micro-batches of a rank in a full step, evenly divided
  ReducerSpec reducer_spec(std::int64_t count) const;
  bool progress_thread() const;                           // sums go on beside the processor's step
  std::map<std::string, std::string> provenance() const;  // what a bitwise equal resume needs to be the same
};

}  // namespace millrace
