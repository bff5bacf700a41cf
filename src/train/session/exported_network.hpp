// model.name = pt2: the network that PyTorch has exported.
#pragma once
#include <memory>

#include "millrace/comm/world.hpp"
#include "millrace/config/run_config.hpp"
#include "millrace/pt2/exported_program.hpp"
#include "millrace/train/session/network.hpp"

namespace millrace {

// Reads model.file; null for other networks. Every rank reads it. text: ModelRecord::network of the checkpoint that is
// evaluated or resumed; it is read in place of a file that is not there, and for evaluations in any case. Warns once of
// parameters that the network does not use, and of those that PyTorch did not train. Error(config), Error(data): it
// cannot be read, or has operations that are not supported.
std::shared_ptr<const pt2::ExportedProgram> read_exported_network(const ModelOptions&, const std::string& text,
                                                                  bool training);
// The inputs of the network of model.file, which rank 0 reads. Collective. Error(config), Error(data), on every rank: a
// rank has no such file, or it cannot be read.
std::int64_t exported_input_count(World&, const ModelOptions&);
// For ModelRecord::network: the network without the weights that a checkpoint has. "": it has no archive, or more
// values of its own than a checkpoint should hold.
std::string network_text(const NetworkSpec&);

}  // namespace millrace
