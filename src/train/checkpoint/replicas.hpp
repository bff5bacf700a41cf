// Finds ranks whose copy of the model differs from that of the other ranks. Without this check, a run goes on with a
// wrong model, and its checkpoints mix the copies of several ranks.
#pragma once
#include <string>

#include "millrace/comm/world.hpp"
#include "train/checkpoint/checkpoint_tensors.hpp"

namespace millrace {

// Compares the weights and running statistics that all ranks store, bit for bit, through a 64-bit checksum of each
// tensor. Returns "", or a message that names the ranks that differ from the majority, and the first such tensor; the
// same on all ranks. Collective. Weights that are sharded over the ranks (ZeRO) have no copies and are not compared.
std::string differing_replicas(World&, Device&, const CheckpointTensors&);

// Copies the initial weights of rank 0 to all ranks: hosts with other processors may compute other random numbers.
// Does nothing if the weights are sharded (ZeRO in 16 bits): each is then computed by one rank only. Collective.
void copy_replicas(World&, Device&, Network&);

}  // namespace millrace
