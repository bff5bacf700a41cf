// From the JSON of run.json, summary.json and layers.json to plain structs.
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

#include "millrace/runs/run_folder.hpp"

namespace millrace {

// What to do with a field that is missing or of the wrong type.
enum class FieldMode {
  strict,  // throw nlohmann's exception
  lenient  // keep the default
};

RunRecord parse_record(const nlohmann::json&, FieldMode);
RunSummary parse_summary(const nlohmann::json&, FieldMode);
// Of the members whose names begin with `prefix`; without a title. Strict.
EvaluationRecord parse_evaluation(const nlohmann::json&, const std::string& prefix);
std::vector<LayerTiming> parse_layers(const nlohmann::json&);  // strict

}  // namespace millrace
