// Batching: how samples are grouped into steps. A step trains on one global batch; it is cut into micro-batches, which
// the load balancer distributes over the ranks.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "millrace/data/load/block_order.hpp"
#include "millrace/data/load/sampler.hpp"
#include "millrace/train/distributed/load_balancer.hpp"
#include "millrace/train/session/data_sets.hpp"
#include "millrace/train/session/epochs.hpp"

namespace millrace {

struct Batching {
  std::int64_t global_batch = 0;         // samples of all ranks in a step
  std::int64_t micro_batch = 0;          // samples that a rank computes at once
  std::unique_ptr<Sampler> valid_order;  // null without validation data
  // The members below are set only for training.
  Epochs epochs;  // a resumed run sets its origin
  std::unique_ptr<Sampler> train_order;
  std::optional<BlockShuffle> blocks;  // with data.shuffle = block
  std::unique_ptr<LoadBalancer> load_balancer;
};

// Collective. Error(config): settings of train.* or data.shuffle* are invalid.
Batching make_batching(World&, const RunConfig&, bool training, const DataSets&);

}  // namespace millrace
