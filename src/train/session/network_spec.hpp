// Computes the NetworkSpec of a run from model.*, optim.* and the shape of the data.
#pragma once
#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"
#include "millrace/train/session/batching.hpp"
#include "millrace/train/session/data_sets.hpp"
#include "millrace/train/session/network.hpp"

namespace millrace {

// training: with gradients and the optimizer's moments. Error(config), Error(data): model.* does not match the data.
NetworkSpec network_spec(const World&, const RunConfig&, bool training, const DataSets&, const Batching&);

}  // namespace millrace
