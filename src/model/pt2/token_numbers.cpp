// Integers that follow from the tokens of a sample: positions that do not count the padding, as RoBERTa has them, and
// the last token before the padding, which classifies a text.
#include <fmt/core.h>

#include <algorithm>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

using Numbers = TokenNumbers::Kind;

bool are_numbers(const Value& v, Numbers kind) { return v.kind == Value::Kind::numbers && v.numbers.kind == kind; }

Value as_numbers(Value v, Numbers kind) {
  v.kind = Value::Kind::numbers;
  v.numbers.kind = kind;
  v.memory = -1;
  return v;
}

// The argument, if it is a tensor.
std::optional<Value> tensor_operand(Context& c, const Call& call, const char* name) {
  const Argument* found = call.node().find(name);
  const auto* one = found ? std::get_if<TensorName>(found) : nullptr;
  if (!one || one->name.empty()) return std::nullopt;
  return c.value(call, one->name);
}

std::optional<Value> differs(const Call& call, const Value& x) {
  if (x.kind != Value::Kind::tokens || !call.is_integer("other") || x.axes.rank() != 2) return std::nullopt;
  Value out = as_numbers(x, Numbers::mask);
  out.numbers.separator = call.integer("other", 0);
  if (out.numbers.separator < INT32_MIN || out.numbers.separator > INT32_MAX)
    call.refuse(fmt::format("compares tokens with {}, which is no token", out.numbers.separator));
  return out;
}

std::optional<Value> sum_of_numbers(const Call& call, const Value& x) {
  if (!call.is_integer("other")) return std::nullopt;
  std::int64_t number = 0;
  if (__builtin_mul_overflow(call.integer("other", 0), call.integer("alpha", 1), &number)) return std::nullopt;
  Value out = as_numbers(x, x.numbers.kind);
  if (number == 0) return out;
  if (!are_numbers(x, Numbers::counts) || number < -INT32_MAX || number > INT32_MAX) return std::nullopt;
  out.numbers.first += number;
  return out;
}

bool counts_positions(const Constant& x, std::int64_t positions) {
  const std::vector<double> values = x.values();
  if (std::int64_t(values.size()) != positions || x.sizes.back() != positions) return false;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != double(i)) return false;
  return true;
}

std::optional<Value> product_of_numbers(Context& c, Value a, Value b) {
  if (!are_numbers(b, Numbers::mask)) std::swap(a, b);
  if (!are_numbers(b, Numbers::mask)) return std::nullopt;
  if (are_numbers(a, Numbers::sums) && a.numbers.separator == b.numbers.separator)
    return as_numbers(a, Numbers::counts);
  const auto places = c.as_constant(a);
  if (!places || places->sizes.empty() || !counts_positions(*places, b.axes.size(1))) return std::nullopt;
  return as_numbers(b, Numbers::places);
}

// Of equal elements: that which a position has does not matter.
std::optional<Value> gathered_equal(Context& c, const Call& call, const Value& index) {
  const auto x = c.as_constant(call.value("self"));
  if (!x || !are_numbers(index, Numbers::counts) || x->rank() != 2 || call.axis("dim", 0, 2) != 1) return std::nullopt;
  const std::vector<double> values = x->values();
  const std::int64_t positions = index.axes.size(1);
  if (values.empty() || std::ranges::any_of(values, [&](double v) { return v != values[0]; })) return std::nullopt;
  if (index.numbers.first < 0 || index.numbers.first + positions >= x->sizes[1])
    call.refuse(fmt::format("takes element {} of {}", index.numbers.first + positions, x->sizes[1]));
  return constant_value(Constant::filled({1, positions}, values[0], x->type));
}

// x[row, last[row]]: the sum over the positions with a factor that is 1 for one of them, and 0 for the others.
std::optional<Value> of_last_token(Context& c, const Call& call) {
  const Argument* found = call.node().find("indices");
  const auto* list = found ? std::get_if<std::vector<TensorName>>(found) : nullptr;
  if (!list || list->size() != 2 || (*list)[0].name.empty() || (*list)[1].name.empty()) return std::nullopt;
  const Value rows = c.value(call, (*list)[0].name), last = c.value(call, (*list)[1].name);
  if (rows.kind != Value::Kind::row_numbers || rows.axes.rank() != 1 || !are_numbers(last, Numbers::last))
    return std::nullopt;
  Value x = call.computed("self");
  const Shape& tokens = c.builder.shape(Graph::x);
  if (x.axes.rank() < 2 || !x.axes.begins_with_rows() || x.axes.size(1) != tokens[1])
    call.refuse(fmt::format("takes the last token of {}, which has not the positions of the samples", x.axes.text()));
  Atoms order = x.axes.logical[0], inner;
  for (std::size_t axis = 2; axis < x.axes.logical.size(); ++axis)
    inner.insert(inner.end(), x.axes.logical[axis].begin(), x.axes.logical[axis].end());
  x = c.ordered(call, x, concatenated({order, x.axes.logical[1], inner}));
  GraphBuilder::MatmulOptions options;
  options.batch = c.rows;
  options.k = tokens[1];
  options.n = x.axes.count(inner);
  const int marks = c.builder.last_token(c.layer_name(call) + ".token", last.numbers.separator);
  const int out = c.builder.matmul(c.layer_name(call), marks, x.graph, {c.rows, options.n}, options);
  Axes axes = x.axes;
  std::erase_if(axes.stored,
                [&](int atom) { return std::ranges::find(axes.logical[1], atom) != axes.logical[1].end(); });
  axes.erase_axis(1);
  return graph_value(out, axes);
}

}  // namespace

bool is_number_operation(const std::string& kind) { return kind == "ne" || kind == "cumsum" || kind == "argmax"; }

std::optional<Value> fold_numbers(Context& c, const Call& call, const std::string& kind) {
  if (kind == "index") return of_last_token(c, call);
  const std::optional<Value> self = tensor_operand(c, call, "self"), other = tensor_operand(c, call, "other");
  if (kind == "gather") {
    const std::optional<Value> index = tensor_operand(c, call, "index");
    return index ? gathered_equal(c, call, *index) : std::nullopt;
  }
  if (!self) return std::nullopt;
  if (kind == "ne") return differs(call, *self);
  if (kind == "mul" && other) return product_of_numbers(c, *self, *other);
  if (self->kind != Value::Kind::numbers) return std::nullopt;
  if (kind == "to" || kind == "_to_copy" || kind == "type_as") return as_numbers(*self, self->numbers.kind);
  if (kind == "add") return sum_of_numbers(call, *self);
  const bool over_positions = self->axes.rank() == 2 && (kind == "cumsum" || kind == "argmax") && call.has("dim") &&
                              call.axis("dim", 0, 2) == 1;
  if (kind == "cumsum" && over_positions && are_numbers(*self, Numbers::mask)) return as_numbers(*self, Numbers::sums);
  if (kind == "argmax" && over_positions && are_numbers(*self, Numbers::places) && !call.flag("keepdim", false)) {
    Value out = as_numbers(*self, Numbers::last);
    out.axes.erase_axis(1);
    return out;
  }
  return std::nullopt;
}

}  // namespace millrace::pt2
