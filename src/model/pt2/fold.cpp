// Which nodes are computed while a network is translated, and the constants that nodes make.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"
#include "model/pt2/context.hpp"

namespace millrace::pt2 {

namespace {

using Type = Constant::Type;

bool is_bool(const Call& call, const char* name) {
  const Argument* given = call.node().find(name);
  return given && std::holds_alternative<bool>(*given);
}
Type number_type(const Call& call, const char* name) {
  return is_bool(call, name) ? Type::boolean : call.is_integer(name) ? Type::integer : Type::real;
}

}  // namespace

// A number is a constant without axes.
Constant operand(const Call& call, const char* name) {
  if (!call.is_number(name) && !is_bool(call, name)) return call.constant(name);
  return Constant::filled({}, call.real(name, 0), number_type(call, name));
}

Type type_of(ScalarType type) {
  if (type == ScalarType::boolean) return Type::boolean;
  StoredTensor of_type;
  of_type.type = type;
  return of_type.is_integer() ? Type::integer : Type::real;
}

Type type_of(const Context& c, const Value& v) {
  if (v.kind == Value::Kind::constant) return v.constant->type;
  if (v.kind == Value::Kind::ignored && v.tensor >= 0) return type_of(c.program.tensors[std::size_t(v.tensor)].type);
  return v.kind == Value::Kind::tokens || v.kind == Value::Kind::row_numbers ? Type::integer : Type::real;
}

// The type that a node asks for, or else this one.
Constant::Type type_of(const Call& call, Constant::Type otherwise) {
  const Argument* given = call.node().find("dtype");
  const auto* type = given ? std::get_if<ScalarType>(given) : nullptr;
  return type ? type_of(*type) : otherwise;
}

namespace {

// zeros(size), new_zeros(self, size) and zeros_like(self). Those with a tensor have its type.
Constant made(const Context& c, const Call& call, double value, Type otherwise) {
  const Sizes sizes = call.has("size") ? call.integers("size") : call.value("self").axes.sizes();
  const Type type = type_of(call, call.has("self") ? type_of(c, call.value("self")) : otherwise);
  return Constant::filled(without_rows(sizes), as_type(value, type), type);
}
Constant zeros(Context& c, const Call& call) { return made(c, call, 0, Type::real); }
Constant ones(Context& c, const Call& call) { return made(c, call, 1, Type::real); }
Constant full(Context& c, const Call& call) {
  return made(c, call, call.real("fill_value", 0), number_type(call, "fill_value"));
}

Constant range(Context&, const Call& call) {
  const double begin = call.real("start", 0), end = call.real("end", 0), step = call.real("step", 1);
  const double count = step == 0 ? -1 : std::ceil((end - begin) / step);
  if (!(count >= 0 && count < 1e7) || (end != 0 && std::fmod(end, double(rows_symbol)) == 0))
    call.refuse("counts the rows from another number than 0 or by other steps, or too far, which is not supported");
  const bool real = !(call.is_integer("end") && (!call.has("start") || call.is_integer("start")) &&
                      (!call.has("step") || call.is_integer("step")));
  Constant out = Constant::filled({std::int64_t(count)}, 0, type_of(call, real ? Type::real : Type::integer));
  for (std::size_t i = 0; i < out.data->size(); ++i) (*out.data)[i] = begin + double(i) * step;
  return out;
}

Constant evenly_spaced(Context&, const Call& call) {
  const double begin = call.real("start", 0), end = call.real("end", 0);
  Constant out = Constant::filled({call.integer("steps", 0)}, 0);
  const double intervals = std::max(double(out.data->size()) - 1, 1.0);
  for (std::size_t i = 0; i < out.data->size(); ++i) (*out.data)[i] = begin + (end - begin) * double(i) / intervals;
  return out;
}

// These only read the sizes of a tensor, if they have one.
const std::map<std::string, Fold>& creations() {
  static const std::map<std::string, Fold> all{
      {"zeros", zeros},     {"ones", ones},     {"full", full},     {"arange", range},     {"linspace", evenly_spaced},
      {"new_zeros", zeros}, {"new_ones", ones}, {"new_full", full}, {"zeros_like", zeros}, {"ones_like", ones},
      {"full_like", full}};
  return all;
}

// 0, 1, ... for the rows.
bool counts_rows(const Call& call) {
  return call.is_integer("end") && call.integer("end", 0) == rows_symbol && call.real("start", 0) == 0 &&
         call.real("step", 1) == 1;
}
Value row_numbers() {
  Value out;
  out.kind = Value::Kind::row_numbers;
  out.axes = Axes::contiguous({rows_symbol});
  return out;
}

bool all_constant(Context& c, const Call& call, const std::string& kind) {
  const auto is_constant = [&](const TensorName& one) {
    if (one.name.empty()) return true;
    const Value& v = c.value(call, one.name);
    return c.as_constant(v).has_value() || (kind == "index" && v.kind == Value::Kind::row_numbers);
  };
  int tensors = 0;
  for (const auto& [name, argument] : call.node().arguments) {
    if (const auto* one = std::get_if<TensorName>(&argument); one && (++tensors, !is_constant(*one))) return false;
    if (const auto* list = std::get_if<std::vector<TensorName>>(&argument))
      for (const TensorName& one : *list)
        if (++tensors, !is_constant(one)) return false;
  }
  return tensors > 0;
}

const Argument* self_of_constant(const ExportedNode& node) {
  const Argument* self = node.find("self");
  return self && std::holds_alternative<TensorName>(*self) ? self : nullptr;
}
bool is_constant_node(const ExportedNode& node, const std::string& kind, const std::set<std::string>& constants) {
  if (creations().contains(kind)) return true;
  const bool cast = kind == "to" || kind == "_to_copy" || kind == "type_as";
  if (const Argument* self = self_of_constant(node); cast && self)
    return constants.contains(std::get<TensorName>(*self).name);
  int tensors = 0;
  bool all = true;
  const auto add = [&](const TensorName& one) {
    ++tensors;
    all = all && (one.name.empty() || constants.contains(one.name));
  };
  for (const auto& [name, argument] : node.arguments) {
    if (const auto* one = std::get_if<TensorName>(&argument)) add(*one);
    if (const auto* list = std::get_if<std::vector<TensorName>>(&argument)) std::ranges::for_each(*list, add);
  }
  return tensors > 0 && all && is_constant_operation(kind);
}

// fill_, zero_ and copy_ have no result of their own.
std::optional<Constant> written(const Call& call, const std::string& kind) {
  if (kind == "fill") return operand(call, "value");
  if (kind == "zero") return Constant::filled({}, 0);
  if (kind == "copy") return call.constant("src");
  return std::nullopt;
}

}  // namespace

bool is_constant_operation(const std::string& kind) {
  return computations().contains(kind) || creations().contains(kind) || kind == "fill" || kind == "zero" ||
         kind == "copy" || is_constant_view(kind);
}

std::set<std::string> constant_names(const ExportedProgram& program) {
  std::set<std::string> out;
  for (const GraphInput& input : program.inputs)
    if (input.kind == GraphInput::Kind::buffer || input.kind == GraphInput::Kind::constant) out.insert(input.name);
  for (const ExportedNode& node : program.nodes) {
    bool in_place = false;
    const std::string kind = kind_of(node.target, &in_place);
    if (is_constant_node(node, kind, out))
      out.insert(node.results.begin(), node.results.end());
    else if (const Argument* self = self_of_constant(node); self && in_place)
      out.erase(std::get<TensorName>(*self).name);
  }
  return out;
}

std::optional<Value> fold(Context& c, const Call& call, const std::string& kind, bool in_place) {
  if (kind == "arange" && counts_rows(call)) return row_numbers();
  if (const auto made = creations().find(kind); made != creations().end()) return constant_value(made->second(c, call));
  if (!is_constant_operation(kind) || !all_constant(c, call, kind)) return std::nullopt;
  if (in_place && call.value("self").kind != Value::Kind::constant) return std::nullopt;  // of a buffer
  if (is_constant_view(kind)) return constant_value(constant_view(call, call.constant("self"), kind));
  std::optional<Constant> result = in_place ? written(call, kind) : std::nullopt;
  if (!result) result = computations().contains(kind) ? computations().at(kind)(c, call) : Constant();
  if (!result->data) call.refuse("is not possible with a constant");
  if (!in_place) return constant_value(*result);
  const Value self = call.value("self");
  const std::vector<double> values = result->expanded(self.constant->sizes).values();
  std::size_t i = 0;
  self.constant->each([&](double& to) { to = as_type(values[i++], self.constant->type); });
  return self;
}

}  // namespace millrace::pt2
