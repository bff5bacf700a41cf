// Parses flat JSON objects, such as the lines of metrics.jsonl, without building a tree.
#pragma once
#include <functional>
#include <string_view>

namespace millrace {

// Calls on(key, value) for each member. The value is NaN for null, 1 for true and 0 for false. Returns false if the
// line is not an object of numbers, booleans and nulls; members before the problem have then been passed to on().
bool parse_flat_json(std::string_view line, const std::function<void(std::string_view key, double value)>& on);

}  // namespace millrace
