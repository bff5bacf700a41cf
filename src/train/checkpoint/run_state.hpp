// RunState <-> JSON text, bit for bit.
#pragma once
#include <string>

#include "train/checkpoint/checkpoint.hpp"

namespace millrace {

std::string to_json(const RunState&);
RunState run_state_from_json(const std::string&);  // throws on anything missing

}  // namespace millrace
