// Which nodes are computed while a network is translated, and the constants that nodes make.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"
#include "model/pt2/context.hpp"

namespace millrace::pt2 {

// A number is a constant without axes.
Constant operand(const Call& call, const char* name) {
  if (!call.is_number(name)) return call.constant(name);
  return Constant::filled({}, call.real(name, 0),
                          call.is_integer(name) ? Constant::Type::integer : Constant::Type::real);
}

// The type that a node asks for, or else this one.
Constant::Type type_of(const Call& call, Constant::Type otherwise) {
  const Argument* given = call.node().find("dtype");
  const auto* type = given ? std::get_if<ScalarType>(given) : nullptr;
  if (!type) return otherwise;
  if (*type == ScalarType::boolean) return Constant::Type::boolean;
  return *type == ScalarType::f16 || *type == ScalarType::f32 || *type == ScalarType::f64 || *type == ScalarType::bf16
             ? Constant::Type::real
             : Constant::Type::integer;
}

namespace {

using Type = Constant::Type;

// zeros(size), new_zeros(self, size) and zeros_like(self).
Constant made(const Call& call, double value, Type type) {
  const Sizes sizes = call.has("size") ? call.integers("size") : call.value("self").axes.sizes();
  return Constant::filled(without_rows(sizes), value, type_of(call, type));
}
Constant zeros(Context&, const Call& call) { return made(call, 0, Type::real); }
Constant ones(Context&, const Call& call) { return made(call, 1, Type::real); }
Constant full(Context&, const Call& call) {
  return made(call, call.real("fill_value", 0), call.is_integer("fill_value") ? Type::integer : Type::real);
}

Constant range(Context&, const Call& call) {
  const double begin = call.real("start", 0), end = call.real("end", 0), step = call.real("step", 1);
  const double count = step == 0 ? -1 : std::ceil((end - begin) / step);
  if (!(count >= 0 && count < 1e7) || std::fmod(end, double(rows_symbol)) == 0)
    call.refuse("counts the rows, or too far, which is not supported");
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

bool all_constant(Context& c, const Call& call) {
  const auto is_constant = [&](const TensorName& one) {
    return one.name.empty() || c.as_constant(c.value(call, one.name)).has_value();
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

std::optional<Value> fold(Context& c, const Call& call, const std::string& kind, bool in_place) {
  if (const auto made = creations().find(kind); made != creations().end()) return constant_value(made->second(c, call));
  if (!is_constant_operation(kind) || !all_constant(c, call)) return std::nullopt;
  if (in_place && call.value("self").kind != Value::Kind::constant) return std::nullopt;  // of a buffer
  if (is_constant_view(kind)) return constant_value(constant_view(call, call.constant("self"), kind));
  std::optional<Constant> result = in_place ? written(call, kind) : std::nullopt;
  if (!result) result = computations().contains(kind) ? computations().at(kind)(c, call) : Constant();
  if (!result->data) call.refuse("is not possible with a constant");
  if (!in_place) return constant_value(*result);
  const Value self = call.value("self");
  const std::vector<double> values = result->expanded(self.constant->sizes).values();
  std::size_t i = 0;
  self.constant->each([&](double& to) { to = values[i++]; });
  return self;
}

}  // namespace millrace::pt2
