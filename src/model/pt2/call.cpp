#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"
#include "model/pt2/context.hpp"

namespace millrace::pt2 {

void Call::refuse(const std::string& why) const {
  fail(Exit::config, "model.file: {}: node '{}' ({}{}{}) {}", context_.program.path.string(), node_.name, node_.target,
       node_.module.empty() ? "" : ", module " + node_.module, node_.source.empty() ? "" : ", " + node_.source, why);
}

const Argument* Call::given(const char* argument) const {
  const Argument* found = node_.find(argument);
  return found && !std::holds_alternative<std::monostate>(*found) ? found : nullptr;
}

bool Call::has(const char* argument) const { return given(argument) != nullptr; }

Value Call::value(const char* argument) const {
  const Argument* found = given(argument);
  const auto* tensor = found ? std::get_if<TensorName>(found) : nullptr;
  if (!tensor || tensor->name.empty()) refuse(fmt::format("has no tensor '{}'", argument));
  return context_.value(*this, tensor->name);
}

Value Call::computed(const char* argument) const { return context_.plain(*this, value(argument)); }

Value Call::parameter(const char* argument) const {
  Value out = value(argument);
  if (out.kind != Value::Kind::parameter || !out.axes.selected.empty() || out.picked)
    refuse(fmt::format("has a '{}' that is no parameter of a module. make it an nn.Parameter", argument));
  return out;
}

Values Call::values(const char* argument) const {
  const Argument* found = given(argument);
  const auto* list = found ? std::get_if<std::vector<TensorName>>(found) : nullptr;
  if (!list) refuse(fmt::format("has no list of tensors '{}'", argument));
  Values out;
  for (const TensorName& one : *list) out.push_back(context_.value(*this, one.name));
  return out;
}

Constant Call::constant(const char* argument) const {
  const auto found = context_.as_constant(value(argument));
  if (!found) refuse(fmt::format("has a '{}' that depends on the samples, or is a parameter", argument));
  return *found;
}

std::vector<std::optional<Index>> Call::indices() const {
  const Argument* found = given("indices");
  const auto* list = found ? std::get_if<std::vector<TensorName>>(found) : nullptr;
  if (!list) refuse("has no list of indices");
  std::vector<std::optional<Index>> out;
  for (const TensorName& one : *list) {
    out.emplace_back();
    if (one.name.empty()) continue;
    const Value& v = context_.value(*this, one.name);
    if (v.kind == Value::Kind::row_numbers)
      out.back() = Index{Constant::filled(without_rows(v.axes.sizes()), 0, Constant::Type::integer), true};
    else if (const auto constant = context_.as_constant(v))
      out.back() = Index{*constant};
    else
      refuse("is indexed by values that depend on the samples, which is not supported");
  }
  return out;
}

bool Call::is_integer(const char* argument) const {
  const Argument* found = given(argument);
  return found && (std::holds_alternative<std::int64_t>(*found) || std::holds_alternative<SymbolName>(*found));
}

bool Call::is_number(const char* argument) const {
  const Argument* found = given(argument);
  return found && (std::holds_alternative<std::int64_t>(*found) || std::holds_alternative<double>(*found) ||
                   std::holds_alternative<SymbolName>(*found));
}

std::int64_t Call::integer(const char* argument, std::int64_t otherwise) const {
  const Argument* found = given(argument);
  if (!found) return otherwise;
  if (const auto* value = std::get_if<std::int64_t>(found)) return *value;
  if (const auto* symbol = std::get_if<SymbolName>(found)) return context_.number(*this, symbol->name);
  if (const auto* value = std::get_if<bool>(found)) return *value;
  refuse(fmt::format("has a '{}' that is no integer", argument));
}

double Call::real(const char* argument, double otherwise) const {
  const Argument* found = given(argument);
  if (!found) return otherwise;
  if (const auto* value = std::get_if<double>(found)) return *value;
  return double(integer(argument, 0));
}

bool Call::flag(const char* argument, bool otherwise) const {
  const Argument* found = given(argument);
  if (!found) return otherwise;
  if (const auto* value = std::get_if<bool>(found)) return *value;
  refuse(fmt::format("has a '{}' that is neither True nor False", argument));
}

std::string Call::text(const char* argument, const std::string& otherwise) const {
  const Argument* found = given(argument);
  const auto* value = found ? std::get_if<std::string>(found) : nullptr;
  return value ? *value : otherwise;
}

Sizes Call::integers(const char* argument, const Sizes& otherwise) const {
  const Argument* found = given(argument);
  if (!found) return otherwise;
  const auto* list = std::get_if<std::vector<Integer>>(found);
  if (!list) return {integer(argument, 0)};
  Sizes out;
  for (const Integer& one : *list) {
    const auto* symbol = std::get_if<SymbolName>(&one);
    out.push_back(symbol ? context_.number(*this, symbol->name) : std::get<std::int64_t>(one));
  }
  return out;
}

int Call::axis(const char* argument, std::int64_t otherwise, int rank) const {
  const std::int64_t number = integer(argument, otherwise);
  if (number < -rank || number >= rank) refuse(fmt::format("has no axis {} of {}", number, rank));
  return int(number < 0 ? number + rank : number);
}

std::vector<int> Call::axes(const char* argument, int rank) const {
  std::vector<int> out;
  for (const std::int64_t dim : integers(argument)) {
    const int axis = axis_number(dim, rank);
    if (std::ranges::find(out, axis) != out.end()) refuse(fmt::format("names the axis {} twice", axis));
    out.push_back(axis);
  }
  return out;
}

}  // namespace millrace::pt2
