// The weights with which a network of PyTorch was exported, as those that a new run begins with.
#pragma once
#include <string>

#include "millrace/comm/world.hpp"
#include "millrace/train/session/network.hpp"

namespace millrace {

// Copies the weights and running statistics of spec.model.exported into the networks of all ranks. Rank 0 reads them.
// Returns what was done, for people. Error(data): the archive is damaged or has changed. Collective.
std::string load_archive_weights(World&, ExecutionContext&, const NetworkSpec&, Network&);

}  // namespace millrace
