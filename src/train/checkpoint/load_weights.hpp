// Weights of another run or another program for the networks of all ranks, and for PyTorch.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint.hpp"

namespace millrace {

// Copies the weights and running statistics of a file (weight_source.hpp) into the network, except those that match
// `skip`. Returns what was done: "weights from FILE: 161 of 162 parameters". Error(data), Error(config): as of
// open_weights(), before anything is changed, and if the file is damaged. Collective.
std::string load_weights(World&, ExecutionContext&, const NetworkSpec&, Network&, const std::filesystem::path&,
                         const std::vector<std::string>& skip = {});

// The same from the archive that spec.model.exported was read from. Error(data): it is damaged. Collective.
std::string load_archive_weights(World&, ExecutionContext&, const NetworkSpec&, Network&);
// Compares only: "FILE: 161 of 162 parameters". Collective.
std::string describe_weights(World&, const NetworkSpec&, const std::filesystem::path&,
                             const std::vector<std::string>& skip);

// Loads a checkpoint, or a .safetensors file that millrace wrote, into a network without training. Collective.
RunState load_model(World&, ExecutionContext&, const NetworkSpec&, Network&, const CheckpointModel&);

}  // namespace millrace
