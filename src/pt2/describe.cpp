#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "millrace/base/units.hpp"
#include "millrace/pt2/exported_program.hpp"

namespace millrace::pt2 {
namespace {

std::string extents_of(const UserInput& input) {
  std::string out;
  for (std::size_t axis = 0; axis < input.sizes.size(); ++axis)
    out += (axis ? ", " : "") + (input.dynamic[axis] ? "any" : std::to_string(input.sizes[axis]));
  return "(" + out + ")";
}

// Tied parameters count once.
std::string parameters_of(const ExportedProgram& program) {
  std::vector<const StoredTensor*> distinct;
  std::int64_t elements = 0;
  int tied = 0, constant = 0;
  for (const StoredTensor& t : program.tensors) {
    if (!t.parameter) continue;
    if (std::ranges::any_of(distinct, [&](const StoredTensor* other) { return other->same_storage(t); })) {
      ++tied;
      continue;
    }
    distinct.push_back(&t);
    elements += t.count();
    constant += !t.requires_grad;
  }
  std::string out = fmt::format("  parameters: {} with {} elements", distinct.size(), elements);
  if (tied > 0) out += fmt::format(", {} more names of tied ones", tied);
  if (constant > 0) out += fmt::format(", {} of them without gradients", constant);
  return out + "\n";
}

}  // namespace

std::string describe(const ExportedProgram& program, bool (*understands)(const std::string&)) {
  std::string out = fmt::format("{}\n  network of PyTorch {}, torch.export schema {}.{}\n", program.path.string(),
                                program.torch_version, program.schema_major, program.schema_minor);
  for (const UserInput& input : program.user_inputs)
    out += fmt::format("  input {}: {} {}\n", input.name, name_of(input.type), extents_of(input));
  out += parameters_of(program);
  out += fmt::format("  results: {}\n  operations: {}\n", program.outputs.size(), program.nodes.size());
  std::map<std::string, int> counts;
  for (const ExportedNode& node : program.nodes) ++counts[node.target];
  std::vector<std::pair<std::string, int>> kinds(counts.begin(), counts.end());
  std::ranges::stable_sort(kinds, [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [target, count] : kinds)
    out += fmt::format("    {:>5} {}{}\n", count, target,
                       understands && !understands(target) ? "  (not supported yet)" : "");
  return out;
}

}  // namespace millrace::pt2
