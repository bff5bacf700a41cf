// Graphs within the graph, where they change nothing: torch.autocast(enabled=False). Their nodes take the place of the
// node that has them.
#include <map>

#include "pt2/json.hpp"

namespace millrace::pt2 {
namespace {

using Names = std::map<std::string, std::string>;  // in the graph around, by those of the inner one

std::string renamed(const Names& names, const std::string& name) {
  const auto found = names.find(name);
  return found == names.end() ? name : found->second;
}

void rename(const Names& names, Argument& argument) {
  if (auto* one = std::get_if<TensorName>(&argument)) one->name = renamed(names, one->name);
  if (auto* one = std::get_if<SymbolName>(&argument)) one->name = renamed(names, one->name);
  if (auto* list = std::get_if<std::vector<TensorName>>(&argument))
    for (TensorName& one : *list) one.name = renamed(names, one.name);
  if (auto* list = std::get_if<std::vector<Integer>>(&argument))
    for (Integer& one : *list)
      if (auto* symbol = std::get_if<SymbolName>(&one)) symbol->name = renamed(names, symbol->name);
}

// The name of a value; "": it is none.
std::string name_of_value(const json& argument) {
  const auto& [kind, content] = tagged(argument);
  if (kind == "as_tensor") return content.at("name").get<std::string>();
  if (kind == "as_sym_int" && content.contains("as_name")) return content["as_name"].get<std::string>();
  return "";
}

bool changes_nothing(const json& node) {
  const json& inputs = node.at("inputs");
  if (node.at("target") != "torch.ops.higher_order.wrap_with_autocast" || inputs.size() < 5) return false;
  const json& enabled = inputs[2].at("arg");
  return enabled.contains("as_bool") && enabled["as_bool"] == false && inputs[4].at("arg").contains("as_graph");
}

}  // namespace

void add_node(const json& in, std::vector<ExportedNode>& out) {
  if (!changes_nothing(in)) {
    out.push_back(read_node(in));
    return;
  }
  constexpr std::size_t first_argument = 5;  // behind the device, the type, two switches and the graph
  const json& arguments = in.at("inputs");
  const json& inner = arguments[4].at("arg").at("as_graph");
  const json &graph = inner.at("graph"), &inputs = graph.at("inputs"), &outputs = graph.at("outputs");
  const ExportedNode outside = read_node(in);
  if (inputs.size() + first_argument != arguments.size() || outputs.size() != outside.results.size())
    fail(Exit::data, "the graph in '{}' has other inputs or results than the node", outside.name);
  Names names;
  std::vector<ExportedNode> nodes;
  for (const json& node : graph.at("nodes")) add_node(node, nodes);
  for (const ExportedNode& node : nodes)
    for (const std::string& result : node.results)
      if (!result.empty()) names[result] = outside.name + "." + result;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    names[name_of_value(inputs[i])] = name_of_value(arguments[i + first_argument].at("arg"));
  for (std::size_t i = 0; i < outputs.size(); ++i) names[name_of_value(outputs[i])] = outside.results[i];
  for (ExportedNode& node : nodes) {
    for (auto& [name, argument] : node.arguments) rename(names, argument);
    for (std::string& result : node.results) result = renamed(names, result);
    out.push_back(std::move(node));
  }
}

}  // namespace millrace::pt2
