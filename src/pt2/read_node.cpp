// Nodes of the graph: operations with their arguments.
#include <cmath>
#include <limits>
#include <vector>

#include "pt2/json.hpp"

namespace millrace::pt2 {
namespace {

// Infinity and NaN are strings, because JSON has no such numbers.
double real_of(const json& value) {
  if (!value.is_string()) return value.get<double>();
  const auto& text = value.get_ref<const std::string&>();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  fail(Exit::data, "'{}' is not a number", text);
}

template <class T, class F>
std::vector<T> list_of(const json& values, F f) {
  std::vector<T> out;
  for (const json& value : values) out.push_back(f(value));
  return out;
}

// {"as_name": "sym_size_int"} or {"as_int": 3}
Integer integer_or_symbol(const json& value) {
  if (!value.is_object()) return integer_of(value);
  const auto& [kind, content] = tagged(value);
  if (kind == "as_name") return SymbolName{content.get<std::string>()};
  return integer_of(content);
}

TensorName tensor_name(const json& value) { return {value.at("name").get<std::string>()}; }

// {"as_tensor": {"name": "x"}} or {"as_none": true}
TensorName optional_tensor_name(const json& value) {
  const auto& [kind, content] = tagged(value);
  return kind == "as_none" ? TensorName{} : tensor_name(content);
}

Argument symbol(const json& value) {
  const auto& [kind, content] = tagged(value);
  if (kind == "as_name") return SymbolName{content.get<std::string>()};
  if (kind == "as_bool") return content.get<bool>();
  if (kind == "as_float") return real_of(content);
  return integer_of(content);
}

Argument argument_of(const json& value) {
  const auto& [kind, content] = tagged(value);
  if (kind == "as_none") return std::monostate{};
  if (kind == "as_tensor") return tensor_name(content);
  if (kind == "as_optional_tensor") return argument_of(content);
  if (kind == "as_tensors") return list_of<TensorName>(content, tensor_name);
  if (kind == "as_optional_tensors") return list_of<TensorName>(content, optional_tensor_name);
  if (kind == "as_int") return integer_of(content);
  if (kind == "as_float") return real_of(content);
  if (kind == "as_bool") return content.get<bool>();
  if (kind == "as_string") return content.get<std::string>();
  if (kind == "as_ints" || kind == "as_sym_ints") return list_of<Integer>(content, integer_or_symbol);
  if (kind == "as_floats") return list_of<double>(content, real_of);
  if (kind == "as_bools") return list_of<bool>(content, [](const json& v) { return v.get<bool>(); });
  if (kind == "as_sym_int" || kind == "as_sym_bool" || kind == "as_sym_float") return symbol(content);
  if (kind == "as_scalar_type") return ScalarType(int(integer_of(content)));
  return OtherArgument{kind};
}

void add_results(const json& outputs, ExportedNode& node) {
  for (const json& output : outputs) {
    const auto& [kind, content] = tagged(output);
    if (kind == "as_tensor") {
      node.results.push_back(content.at("name"));
    } else if (kind == "as_tensors") {
      node.list = true;
      for (const json& one : content) node.results.push_back(one.at("name"));
    } else if (kind == "as_sym_int" || kind == "as_sym_bool" || kind == "as_sym_float") {
      node.results.push_back(content.at("as_name"));
    } else {
      node.results.emplace_back();
    }
  }
}

// "L__self__,,Net;L__self__conv,conv,torch.nn.Conv2d": the last entry has the path of the module.
std::string module_of(const std::string& stack) {
  const std::string last = stack.substr(stack.rfind(';') + 1);
  const auto comma = last.find(',');
  return comma == last.npos ? "" : last.substr(comma + 1, last.find(',', comma + 1) - comma - 1);
}

// A line `File "net.py", line 13, in forward` of a stack trace: the innermost one outside of PyTorch itself.
std::string source_of(const std::string& trace) {
  std::string found;
  const std::string begin = "File \"";
  for (auto at = trace.find(begin); at != trace.npos; at = trace.find(begin, at + 1)) {
    const auto file = at + begin.size(), end = trace.find("\", line ", file);
    if (end == trace.npos) break;
    const std::string name = trace.substr(file, end - file);
    const auto number = end + 8;
    const std::string line = trace.substr(number, trace.find_first_not_of("0123456789", number) - number);
    if (found.empty() || name.find("/torch/") == name.npos) found = name + ":" + line;
  }
  for (char& c : found)
    if (std::uint8_t(c) < 0x20) c = '?';
  return found;
}

}  // namespace

ExportedNode read_node(const json& in) {
  ExportedNode node;
  node.target = in.at("target");
  if (const std::string prefix = "torch.ops."; node.target.starts_with(prefix)) node.target.erase(0, prefix.size());
  for (const json& one : in.at("inputs"))
    node.arguments.emplace_back(one.at("name").get<std::string>(), argument_of(one.at("arg")));
  add_results(in.at("outputs"), node);
  node.name = !node.results.empty() && !node.results[0].empty() ? node.results[0] : node.target;
  if (const auto metadata = in.find("metadata"); metadata != in.end()) {
    node.module = module_of(metadata->value("nn_module_stack", ""));
    node.source = source_of(metadata->value("stack_trace", ""));
  }
  return node;
}

const Argument* ExportedNode::find(const std::string& argument) const {
  for (const auto& [name, value] : arguments)
    if (name == argument) return &value;
  return nullptr;
}

}  // namespace millrace::pt2
