// Operations on constants alone: they are computed at once, in double, and become no part of the network.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/base/error.hpp"
#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

using Type = Constant::Type;
Constant self_of(const Call& call) { return call.constant("self"); }

template <class F>
Constant combined(const Constant& a, const Constant& b, Type type, const F& f) {
  const Sizes sizes = broadcast_sizes(a.sizes, b.sizes);
  std::vector<double> left = a.expanded(sizes).values();
  const std::vector<double> right = b.expanded(sizes).values();
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = as_type(f(left[i], right[i]), type);
  return Constant::of(sizes, std::move(left), type);
}

enum class Result { of_operands, boolean, real };
using Binary = double (*)(double, double);
template <Binary F, Result R>
Constant binary(Context&, const Call& call) {
  const Constant a = operand(call, "self"), b = operand(call, call.has("exponent") ? "exponent" : "other");
  const Type type = R == Result::boolean ? Type::boolean : R == Result::real ? Type::real : std::max(a.type, b.type);
  const double alpha = call.real("alpha", 1);
  return combined(a, b, type, [&](double x, double y) { return F(x, alpha * y); });
}

Constant divided(Context&, const Call& call) {
  const Constant a = operand(call, "self"), b = operand(call, "other");
  const std::string mode = call.text("rounding_mode", "");
  const Type type = mode.empty() ? Type::real : std::max(a.type, b.type);
  return combined(a, b, type, [&](double x, double y) {
    return mode == "floor" ? std::floor(x / y) : mode == "trunc" ? std::trunc(x / y) : x / y;
  });
}

using Unary = double (*)(double);
template <Unary F, Result R>
Constant unary(Context&, const Call& call) {
  Constant out = self_of(call).copy();
  for (double& v : *out.data) v = F(v);
  if (R != Result::of_operands) out.type = R == Result::boolean ? Type::boolean : Type::real;
  return out;
}

Constant inverted(Context&, const Call& call) {
  Constant out = self_of(call).copy();
  for (double& v : *out.data) v = out.type == Type::boolean ? double(v == 0) : -1 - v;
  return out;
}

Constant clamped(Context&, const Call& call) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double low = call.real("min", -infinity), high = call.real("max", infinity);
  Constant out = self_of(call).copy();
  for (double& v : *out.data) v = std::min(std::max(v, low), high);
  return out;
}

Constant chosen(const Constant& condition, const Constant& yes, const Constant& no) {
  const Sizes sizes = broadcast_sizes(condition.sizes, broadcast_sizes(yes.sizes, no.sizes));
  const std::vector<double> which = condition.expanded(sizes).values(), other = no.expanded(sizes).values();
  std::vector<double> out = yes.expanded(sizes).values();
  for (std::size_t i = 0; i < out.size(); ++i)
    if (which[i] == 0) out[i] = other[i];
  return Constant::of(sizes, std::move(out), std::max(yes.type, no.type));
}
Constant chosen_by(Context&, const Call& call) {
  return chosen(call.constant("condition"), operand(call, "self"), operand(call, "other"));
}
Constant filled_by_mask(Context&, const Call& call) {
  const Constant x = self_of(call);
  Constant out = chosen(call.constant("mask"), operand(call, "value"), x);
  out.type = x.type;
  return out;
}

Constant converted(Context&, const Call& call) {
  Constant out = self_of(call).copy();
  out.type = call.has("other") ? call.constant("other").type : type_of(call, out.type);
  for (double& v : *out.data) v = as_type(v, out.type);
  return out;
}

Constant triangle(const Call& call, bool lower) {
  Constant out = self_of(call).copy();
  if (out.rank() < 2) call.refuse("takes a triangle of what is no matrix");
  const std::int64_t rows = out.sizes[out.sizes.size() - 2], columns = out.sizes.back();
  const std::int64_t diagonal = call.integer("diagonal", 0);
  for (std::size_t i = 0; i < out.data->size(); ++i) {
    const std::int64_t row = std::int64_t(i) / columns % rows, column = std::int64_t(i) % columns;
    if (lower ? column - row > diagonal : column - row < diagonal) (*out.data)[i] = 0;
  }
  return out;
}
Constant lower_triangle(Context&, const Call& call) { return triangle(call, true); }
Constant upper_triangle(Context&, const Call& call) { return triangle(call, false); }

Constant taken(Context&, const Call& call) { return index_constant(call, self_of(call)); }

Constant cumulated(Context&, const Call& call) {
  Constant out = self_of(call).copy();
  out.type = type_of(call, std::max(out.type, Type::integer));
  const auto axis = std::size_t(call.axis("dim", 0, out.rank()));
  const std::int64_t step = out.strides[axis], size = out.sizes[axis];
  for (std::int64_t i = 0; i < std::int64_t(out.data->size()); ++i)
    if (i / step % size > 0) (*out.data)[std::size_t(i)] += (*out.data)[std::size_t(i - step)];
  return out;
}

double plus(double a, double b) { return a + b; }
double minus(double a, double b) { return a - b; }
double minus_reversed(double a, double b) { return b - a; }
double times(double a, double b) { return a * b; }
double raised_to(double a, double b) { return std::pow(a, b); }
double floor_division(double a, double b) { return std::floor(a / b); }
double modulo(double a, double b) { return a - std::floor(a / b) * b; }
double least(double a, double b) { return std::min(a, b); }
double most(double a, double b) { return std::max(a, b); }
double equal(double a, double b) { return a == b; }
double different(double a, double b) { return a != b; }
double less(double a, double b) { return a < b; }
double at_most(double a, double b) { return a <= b; }
double greater(double a, double b) { return a > b; }
double at_least(double a, double b) { return a >= b; }
double both(double a, double b) { return a != 0 && b != 0; }
double either(double a, double b) { return a != 0 || b != 0; }
std::int64_t whole(double a) { return std::abs(a) < 0x1p53 ? std::int64_t(a) : 0; }
double bits_of_both(double a, double b) { return double(whole(a) & whole(b)); }
double bits_of_either(double a, double b) { return double(whole(a) | whole(b)); }
double negated(double a) { return -a; }
double absolute(double a) { return std::abs(a); }
double inverse_square_root(double a) { return 1 / std::sqrt(a); }
double inverse(double a) { return 1 / a; }
double denied(double a) { return a == 0; }
double sine(double a) { return std::sin(a); }
double cosine(double a) { return std::cos(a); }
double exponential(double a) { return std::exp(a); }
double logarithm(double a) { return std::log(a); }
double root(double a) { return std::sqrt(a); }
double rounded_down(double a) { return std::floor(a); }

}  // namespace

const std::map<std::string, Fold>& computations() {
  using enum Result;
  static const std::map<std::string, Fold> all{{"add", binary<plus, of_operands>},
                                               {"sub", binary<minus, of_operands>},
                                               {"rsub", binary<minus_reversed, of_operands>},
                                               {"mul", binary<times, of_operands>},
                                               {"pow", binary<raised_to, of_operands>},
                                               {"floor_divide", binary<floor_division, of_operands>},
                                               {"remainder", binary<modulo, of_operands>},
                                               {"minimum", binary<least, of_operands>},
                                               {"maximum", binary<most, of_operands>},
                                               {"min", binary<least, of_operands>},
                                               {"max", binary<most, of_operands>},
                                               {"eq", binary<equal, boolean>},
                                               {"ne", binary<different, boolean>},
                                               {"lt", binary<less, boolean>},
                                               {"le", binary<at_most, boolean>},
                                               {"gt", binary<greater, boolean>},
                                               {"ge", binary<at_least, boolean>},
                                               {"logical_and", binary<both, boolean>},
                                               {"logical_or", binary<either, boolean>},
                                               {"__and__", binary<bits_of_both, of_operands>},
                                               {"__or__", binary<bits_of_either, of_operands>},
                                               {"bitwise_and", binary<bits_of_both, of_operands>},
                                               {"bitwise_or", binary<bits_of_either, of_operands>},
                                               {"div", divided},
                                               {"neg", unary<negated, of_operands>},
                                               {"abs", unary<absolute, of_operands>},
                                               {"rsqrt", unary<inverse_square_root, real>},
                                               {"reciprocal", unary<inverse, real>},
                                               {"logical_not", unary<denied, boolean>},
                                               {"bitwise_not", inverted},
                                               {"sin", unary<sine, real>},
                                               {"cos", unary<cosine, real>},
                                               {"exp", unary<exponential, real>},
                                               {"log", unary<logarithm, real>},
                                               {"sqrt", unary<root, real>},
                                               {"floor", unary<rounded_down, of_operands>},
                                               {"clamp", clamped},
                                               {"where", chosen_by},
                                               {"masked_fill", filled_by_mask},
                                               {"to", converted},
                                               {"_to_copy", converted},
                                               {"type_as", converted},
                                               {"tril", lower_triangle},
                                               {"triu", upper_triangle},
                                               {"index", taken},
                                               {"cumsum", cumulated},
                                               {"gather", gathered},
                                               {"index_select", selected_constant},
                                               {"diff", differences},
                                               {"repeat_interleave", repeated_elements},
                                               {"cat", joined_constants},
                                               {"concat", joined_constants},
                                               {"stack", stacked_constants},
                                               {"repeat", repeated_constant}};
  return all;
}

}  // namespace millrace::pt2
