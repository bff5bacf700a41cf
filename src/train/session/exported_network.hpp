// model.name = pt2: the network that PyTorch has exported.
#pragma once
#include <memory>

#include "millrace/config/run_config.hpp"
#include "millrace/pt2/exported_program.hpp"

namespace millrace {

// Reads model.file; null for other networks. Every rank reads it. Warns once of parameters that the network does not
// use, and of those that PyTorch did not train. Error(config), Error(data): it cannot be read, or has operations that
// are not supported.
std::shared_ptr<const pt2::ExportedProgram> read_exported_network(const ModelOptions&);

}  // namespace millrace
