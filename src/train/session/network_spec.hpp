// Computes the NetworkSpec of a run from model.*, optim.* and the shape of the data.
#pragma once
#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"
#include "millrace/train/session/batching.hpp"
#include "millrace/train/session/data_sets.hpp"
#include "millrace/train/session/network.hpp"

namespace millrace {

// training: with gradients and the optimizer's moments. trained: of the checkpoint that is evaluated or resumed; it may
// hold an exported network. Error(config), Error(data): model.* does not match the data.
NetworkSpec network_spec(const World&, const RunConfig&, bool training, const DataSets&, const Batching&,
                         const ModelRecord* trained = nullptr);

// Of the model of a checkpoint, to compute single rows without data. Error(config): the configuration describes another
// network than the checkpoint.
NetworkSpec trained_network_spec(const World&, const RunConfig&, const ModelRecord&);

// describe_function() of the network.
std::vector<std::string> function_of(const NetworkSpec&);
// Error(config): the spec gives another function than that of `trained`. where: the folder of the run that would
// resume; "" if none does.
void require_function(const NetworkSpec&, const ModelRecord& trained, const std::string& where);

}  // namespace millrace
