// Products of two values, softmax, and what moves elements by constant indices.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

// The order of a factor that is copied least: the batch, then rows and columns of its matrix, or columns and rows.
struct Factor {
  Value value;
  bool transposed = false;
};

Factor factor_in_order(Context& c, const Call& call, const Value& v) {
  const std::size_t rank = v.axes.logical.size();
  Atoms batch;
  for (std::size_t axis = 0; axis + 2 < rank; ++axis)
    batch.insert(batch.end(), v.axes.logical[axis].begin(), v.axes.logical[axis].end());
  const Atoms &rows = v.axes.logical[rank - 2], &columns = v.axes.logical[rank - 1];
  // Whole rows of the copy should be moved together.
  const bool transposed = !is_suffix(columns, v.axes.stored) && is_suffix(rows, v.axes.stored);
  return {c.ordered(call, v, transposed ? concatenated({batch, columns, rows}) : concatenated({batch, rows, columns})),
          transposed};
}

Values matmul(Context& c, const Call& call, const char* left, const char* right) {
  const Value a = call.value(left), b = call.value(right);
  if (a.kind == Value::Kind::parameter) call.refuse("multiplies a parameter from the left, which is not supported");
  if (b.kind == Value::Kind::parameter && b.axes.rank() == 2) return times_parameter(c, call, a, b);
  return {matrix_product(c, call, a, b)};
}
Values matrix_multiply(Context& c, const Call& call) {
  return matmul(c, call, "self", call.has("mat2") ? "mat2" : "other");
}

// beta * self + alpha * (batch1 batch2)
Values product_and_sum(Context& c, const Call& call) {
  const Value product = matrix_product(c, call, call.value("batch1"), call.value("batch2"));
  const double beta = call.real("beta", 1);
  const Value scaled = affine(c, call, product, call.real("alpha", 1), 0);
  return {beta == 0 ? scaled : sum_with(c, call, scaled, "self", beta)};
}

Values softmax(Context& c, const Call& call) {
  const Value x = call.computed("self");
  return {softmax_over(c, call, x, call.axis("dim", -1, x.axes.rank()))};
}

std::vector<std::int32_t> counted(std::int64_t count) {
  std::vector<std::int32_t> out(std::size_t(checked_count({count})));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

Values roll(Context& c, const Call& call) {
  Value x = call.value("self");
  const Sizes shifts = call.integers("shifts"), dims = call.integers("dims");
  if (shifts.size() != dims.size()) call.refuse("rolls all elements at once. name the axes with dims");
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const int axis = axis_number(dims[i], x.axes.rank());
    const std::int64_t size = x.axes.size(axis);
    if (size % rows_symbol == 0) call.refuse("rolls the rows, which is not supported");
    std::vector<std::int32_t> order = counted(size);
    const std::int64_t shift = (shifts[i] % size + size) % size;
    std::rotate(order.begin(), order.end() - std::ptrdiff_t(shift), order.end());
    x = c.take(call, x, axis, std::move(order));
  }
  return {x};
}

Values flip(Context& c, const Call& call) {
  Value x = call.value("self");
  for (const std::int64_t dim : call.integers("dims")) {
    const int axis = axis_number(dim, x.axes.rank());
    if (x.axes.size(axis) % rows_symbol == 0) call.refuse("reverses the rows, which is not supported");
    std::vector<std::int32_t> order = counted(x.axes.size(axis));
    std::ranges::reverse(order);
    x = c.take(call, x, axis, std::move(order));
  }
  return {x};
}

// The element of an axis that stands at this place, which may be outside of it; -1: the constant.
std::int32_t padded_from(const std::string& mode, std::int64_t at, std::int64_t size) {
  if (mode == "replicate") return std::int32_t(std::clamp<std::int64_t>(at, 0, size - 1));
  if (mode == "circular") return std::int32_t((at % size + size) % size);
  if (mode == "reflect") at = at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at;
  return at < 0 || at >= size ? -1 : std::int32_t(at);
}

Value padded(Context& c, const Call& call, Value x, int axis, std::int64_t before, std::int64_t behind) {
  const std::string mode = call.text("mode", "constant");
  const double value = mode == "constant" ? call.real("value", 0) : 0;
  const std::int64_t size = x.axes.size(axis);
  if (size % rows_symbol == 0) call.refuse("pads the rows, which is not supported");
  if (before < -size || behind < -size) call.refuse("takes no elements");
  checked_count({size});
  checked_count({std::max<std::int64_t>(before, 0)});
  checked_count({std::max<std::int64_t>(behind, 0)});
  if (mode != "constant" && (before > size || behind > size || (mode == "reflect" && std::max(before, behind) >= size)))
    call.refuse("repeats more elements than there are");
  std::vector<std::int32_t> order;
  std::vector<double> added;
  for (std::int64_t at = -before; at < size + behind; ++at) {
    order.push_back(padded_from(mode, at, size));
    added.push_back(order.back() < 0 ? value : 0);
  }
  x = c.take(call, x, axis, std::move(order));
  if (value == 0) return x;
  Sizes sizes(std::size_t(x.axes.rank()), 1);
  sizes[std::size_t(axis)] = x.axes.size(axis);
  return affine(c, call, x, Constant::filled({}, 1), Constant::of(sizes, std::move(added), Constant::Type::real));
}

// "pad" has, for each axis from the last one on, how many elements are added before and behind it.
Values pad(Context& c, const Call& call) {
  Value x = call.value("self");
  const Sizes amounts = call.integers("pad");
  if (amounts.size() % 2 != 0 || amounts.size() / 2 > x.axes.logical.size())
    call.refuse("has a 'pad' that does not fit");
  for (std::size_t i = 0; i < amounts.size() / 2; ++i)
    if (const std::int64_t before = amounts[2 * i], behind = amounts[2 * i + 1]; before != 0 || behind != 0)
      x = padded(c, call, x, x.axes.rank() - 1 - int(i), before, behind);
  return {x};
}

std::vector<std::int32_t> indices_below(const Call& call, const Constant& index, std::int64_t size) {
  std::vector<std::int32_t> out;
  for (const double i : index.values()) {
    if (index.type != Constant::Type::integer || !(i >= -double(size) && i < double(size)))
      call.refuse(fmt::format("has the index {} of {}", i, size));
    out.push_back(std::int32_t(i < 0 ? i + double(size) : i));
  }
  return out;
}

Values index_select(Context& c, const Call& call) {
  const Value x = call.value("self");
  const int axis = call.axis("dim", 0, x.axes.rank());
  const Constant index = call.constant("index");
  if (x.axes.size(axis) % rows_symbol == 0) call.refuse("takes some of the rows, which is not supported");
  return {c.take(call, x, axis, indices_below(call, index, x.axes.size(axis)))};
}

// x[row, i] for each row: one element of the axis behind the rows.
Value element_of_rows(const Call& call, Value x, const Index& rows, const Index& element) {
  const bool fits = x.axes.rank() > 1 && x.axes.begins_with_rows() && rows.constant.rank() == 1 && !element.of_rows &&
                    element.constant.count() == 1 && element.constant.rank() <= 1;
  if (!fits) call.refuse("takes several elements for each row by an index, which is not supported");
  x.axes.select(1, indices_below(call, element.constant, x.axes.size(1))[0]);
  return x;
}

// One index of one axis, or any of a parameter.
Values index(Context& c, const Call& call) {
  Value x = call.value("self");
  if (x.kind == Value::Kind::parameter) {
    const Constant picked = index_constant(call, parameter_places(x));
    x.axes = Axes::contiguous(picked.sizes);
    x.picked = std::make_shared<const Constant>(picked);
    return {x};
  }
  const std::vector<std::optional<Index>> all = call.indices();
  if (all.size() == 2 && all[0] && all[0]->of_rows && all[1]) return {element_of_rows(call, x, *all[0], *all[1])};
  const auto first = std::ranges::find_if(all, [](const auto& one) { return one.has_value(); });
  if (first == all.end() || std::ranges::count_if(all, [](const auto& one) { return one.has_value(); }) != 1 ||
      std::int64_t(all.size()) > x.axes.rank())
    call.refuse("indexes several axes of a value at once, which is not supported");
  const int axis = int(first - all.begin());
  const std::int64_t size = x.axes.size(axis);
  if (size % rows_symbol == 0) call.refuse("takes some of the rows, which is not supported");
  if ((*first)->of_rows) call.refuse("takes another element for each row, which is not supported");
  x = c.take(call, x, axis, indices_below(call, (*first)->constant, size));
  Sizes sizes = x.axes.sizes();
  sizes.erase(sizes.begin() + axis);
  const Sizes& of_index = (*first)->constant.sizes;
  sizes.insert(sizes.begin() + axis, of_index.begin(), of_index.end());
  if (!x.axes.view(sizes)) call.refuse("has an index whose axes do not fit");
  return {x};
}

}  // namespace

Value matrix_product(Context& c, const Call& call, Value a, Value b) {
  const int rank = a.axes.rank();
  if (rank < 3 || b.axes.rank() != rank)
    call.refuse(fmt::format("multiplies {} by {}, which are no matrices for each row", a.axes.text(), b.axes.text()));
  for (int axis = 0; axis + 2 < rank; ++axis) {
    const std::int64_t of_a = a.axes.size(axis), of_b = b.axes.size(axis);
    Sizes to(std::size_t(rank), -1);
    to[std::size_t(axis)] = std::max(of_a, of_b);
    if (of_a != of_b) (of_a < of_b ? a : b) = expanded(c, call, of_a < of_b ? a : b, to);
  }
  if (a.axes.size(rank - 1) != b.axes.size(rank - 2))
    call.refuse(fmt::format("multiplies {} by {}, whose extents do not fit", a.axes.text(), b.axes.text()));
  const Factor left = factor_in_order(c, call, a), right = factor_in_order(c, call, b);
  const Axes& axes = left.value.axes;
  Atoms batch;
  for (int axis = 0; axis + 2 < rank; ++axis)
    batch.insert(batch.end(), axes.logical[std::size_t(axis)].begin(), axes.logical[std::size_t(axis)].end());
  if (batch.empty() || axes.extents[std::size_t(batch[0])] != rows_symbol)
    call.refuse("multiplies matrices of which the rows are a part");
  GraphBuilder::MatmulOptions options;
  const std::int64_t of_row = axes.count(Atoms(batch.begin() + 1, batch.end()));
  options.batch = c.rows * of_row;
  options.m = axes.size(rank - 2);
  options.k = axes.size(rank - 1);
  options.n = b.axes.size(rank - 1);
  if (double(options.batch) * double(options.m) * double(options.n) > 0x1p40) call.refuse("has more than 2^40 results");
  options.transpose_a = left.transposed;
  options.transpose_b = right.transposed;
  const Shape to{c.rows, of_row * options.m, options.n};
  const int out = c.builder.matmul(c.layer_name(call), left.value.graph, right.value.graph, to, options);
  Axes result = axes;
  result.stored = concatenated({batch, axes.logical[std::size_t(rank) - 2]});
  result.logical.back().clear();
  result.replace_axis(rank - 1, options.n);
  return graph_value(out, result);
}

Value softmax_over(Context& c, const Call& call, Value x, int axis) {
  const Atoms own = x.axes.logical[std::size_t(axis)];
  if (std::ranges::any_of(own, [&](int atom) { return x.axes.extents[std::size_t(atom)] == rows_symbol; }))
    call.refuse("is over the rows, which is not supported");
  const int src = c.channels_last(call, x, own);
  x.graph = c.builder.softmax(c.layer_name(call), src);
  x.memory = -1;
  return x;
}

void add_products(Operations& all) {
  for (const char* name : {"matmul", "bmm", "mm"}) all[name] = matrix_multiply;
  all["baddbmm"] = product_and_sum;
  all["softmax"] = all["_softmax"] = softmax;
  all["roll"] = roll;
  all["flip"] = flip;
  all["pad"] = all["constant_pad_nd"] = pad;
  all["index_select"] = index_select;
  all["index"] = index;
}

}  // namespace millrace::pt2
