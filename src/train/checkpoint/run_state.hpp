// Converts a RunState and a ModelRecord to JSON text and back without loss.
#pragma once
#include <string>

#include "millrace/train/session/model_record.hpp"
#include "train/checkpoint/checkpoint.hpp"

namespace millrace {

std::string to_json(const RunState&);
RunState run_state_from_json(const std::string&);  // throws when a field is missing
std::string to_json(const ModelRecord&);
ModelRecord model_record_from_json(const std::string&);  // throws when a field is missing

}  // namespace millrace
