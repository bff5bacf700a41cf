// Reading the JSON of an archive. Exceptions of nlohmann::json become an Error(data) in read_exported_program().
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "millrace/base/error.hpp"
#include "millrace/pt2/exported_program.hpp"

namespace millrace::pt2 {

using nlohmann::json;

// Limits the depth, because values are copied and freed level by level.
json parse_json(const std::string& text);

// Unlike get<std::int64_t>(), refuses fractions and numbers that do not fit.
std::int64_t integer_of(const json&);
// The only member of an object such as {"as_int": 1}: the archive's form of a tagged union.
const std::pair<const std::string, json>& tagged(const json&);

ExportedNode read_node(const json&);
// Adds the node, or the nodes of a graph within it that changes nothing.
void add_node(const json&, std::vector<ExportedNode>&);

}  // namespace millrace::pt2
