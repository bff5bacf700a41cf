// Converts a RunState to JSON text and back without loss.
#pragma once
#include <string>

#include "train/checkpoint/checkpoint.hpp"

namespace millrace {

std::string to_json(const RunState&);
RunState run_state_from_json(const std::string&);  // throws when a field is missing

}  // namespace millrace
