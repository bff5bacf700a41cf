// Flat JSON objects, as the lines of metrics.jsonl are, without a tree for each.
#pragma once
#include <functional>
#include <string_view>

namespace millrace {

// Calls on(key, value) for each member; null is not a number (NaN), true is 1. False when the line is no object of
// numbers, switches and nulls.
bool parse_flat_json(std::string_view line, const std::function<void(std::string_view key, double value)>& on);

}  // namespace millrace
