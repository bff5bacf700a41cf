// Graphs within the graph, where they change nothing: torch.autocast(enabled=False). Their nodes take the place of the
// node that has them.
#include <map>
#include <set>

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

// The names of the inner graph, but for its results. Each stands for one value of the graph around.
Names names_within(const ExportedNode& outside, const std::vector<ExportedNode>& nodes, const json& inputs,
                   const json& arguments, std::size_t first_argument) {
  Names names;
  for (const ExportedNode& node : nodes)
    for (const std::string& result : node.results)
      if (!result.empty()) names[result] = outside.name + "." + result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string inner = name_of_value(inputs[i]), given = name_of_value(arguments[i + first_argument].at("arg"));
    if (!inner.empty()) names[inner] = given.empty() ? outside.name + "." + inner : given;
  }
  return names;
}

// A node that gives a value one more name.
ExportedNode alias_of(const ExportedNode& outside, const std::string& value, const std::string& result, bool number) {
  ExportedNode out;
  out.name = result;
  out.target = number ? "_operator.mul" : "aten.alias.default";
  if (number)
    out.arguments = {{"a", SymbolName{value}}, {"b", std::int64_t(1)}};
  else
    out.arguments = {{"self", TensorName{value}}};
  out.results = {result};
  out.module = outside.module;
  out.source = outside.source;
  return out;
}

// Results of the inner graph: those of its nodes get the names that they have outside. Those that are inputs of it, or
// are returned once more, get a node of their own.
std::vector<ExportedNode> inlined_results(const ExportedNode& outside, const json& outputs,
                                          const std::vector<ExportedNode>& nodes, Names& names) {
  std::set<std::string> computed;
  for (const ExportedNode& node : nodes) computed.insert(node.results.begin(), node.results.end());
  std::vector<std::pair<std::size_t, std::string>> others;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string name = name_of_value(outputs[i]);
    if (name.empty() != outside.results[i].empty())
      fail(Exit::data, "the graph in '{}' returns what is no value", outside.name);
    if (name.empty()) continue;
    if (computed.erase(name) > 0)
      names[name] = outside.results[i];
    else
      others.emplace_back(i, name);
  }
  std::vector<ExportedNode> out;
  for (const auto& [i, name] : others)
    out.push_back(alias_of(outside, renamed(names, name), outside.results[i], tagged(outputs[i]).first != "as_tensor"));
  return out;
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
  std::vector<ExportedNode> nodes;
  for (const json& node : graph.at("nodes")) add_node(node, nodes);
  Names names = names_within(outside, nodes, inputs, arguments, first_argument);
  const std::vector<ExportedNode> aliases = inlined_results(outside, outputs, nodes, names);
  for (ExportedNode& node : nodes) {
    for (auto& [name, argument] : node.arguments) rename(names, argument);
    for (std::string& result : node.results) result = renamed(names, result);
    out.push_back(std::move(node));
  }
  out.insert(out.end(), aliases.begin(), aliases.end());
}

}  // namespace millrace::pt2
