// Operations that move nothing: other axes for the same elements. And those that join or divide values.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

Values unchanged(Context&, const Call& call) { return {call.value("self")}; }

Values clone(Context&, const Call& call) {
  Value x = call.value("self");
  x.memory = -1;
  return {x};
}

// A cast to the type of the network. It says nothing about the type in which millrace computes.
Values cast(Context& c, const Call& call) {
  const Value x = call.value("self");
  if (const auto constant = call.has("other") ? c.as_constant(x) : std::nullopt) {  // "other" is no constant
    Constant out = constant->copy();
    out.type = type_of(c, call.value("other"));
    for (double& v : *out.data) v = as_type(v, out.type);
    return {constant_value(out)};
  }
  const Argument* type = call.node().find("dtype");
  const auto* number = type ? std::get_if<ScalarType>(type) : nullptr;
  const bool integers = x.kind == Value::Kind::tokens || x.kind == Value::Kind::row_numbers;
  if (integers && (!number || *number == ScalarType::i64 || *number == ScalarType::i32)) return {x};
  if (number && *number != ScalarType::f32 && *number != ScalarType::f64)
    call.refuse(fmt::format("casts to {}. run.precision sets the type of the computation", name_of(*number)));
  return {x};
}

Value viewed(Context& c, const Call& call, Value x, Sizes sizes) {
  const auto unknown = std::ranges::find(sizes, -1);
  if (unknown != sizes.end()) {
    *unknown = 1;
    std::int64_t known = 1, all = 1;
    for (const std::int64_t size : sizes)
      if (size < 0 || __builtin_mul_overflow(known, size, &known)) call.refuse("has a size below 0");
    for (const std::int64_t size : x.axes.sizes()) all *= size;
    if (known == 0 || all % known != 0) call.refuse(fmt::format("divides {} into parts of {}", x.axes.text(), known));
    *unknown = all / known;
  }
  if (x.axes.view(sizes) || x.axes.view_across(sizes)) return x;
  Axes in_order = Axes::contiguous(x.axes.sizes());  // whether that would be possible behind a copy
  const bool rows = x.axes.begins_with_rows() && in_order.begins_with_rows();
  if (x.kind != Value::Kind::graph || !rows || !in_order.view_across(sizes))
    call.refuse(
        fmt::format("gives {} extents that cut across its axes or the rows, which is not supported", x.axes.text()));
  x = c.contiguous(call, x);
  if (!x.axes.view_across(sizes)) call.refuse("gives a value extents of another number of elements");
  return x;
}

Values view(Context& c, const Call& call) {
  return {viewed(c, call, call.value("self"), call.integers(call.has("size") ? "size" : "shape"))};
}

Values view_as(Context& c, const Call& call) {
  return {viewed(c, call, call.value("self"), call.value("other").axes.sizes())};
}

Values flatten(Context& c, const Call& call) {
  const Value x = call.value("self");
  const int rank = x.axes.rank(), begin = call.axis("start_dim", 0, rank), end = call.axis("end_dim", -1, rank);
  Sizes sizes = x.axes.sizes();
  for (int axis = end; axis > begin; --axis) {
    sizes[std::size_t(axis) - 1] *= sizes[std::size_t(axis)];
    sizes.erase(sizes.begin() + axis);
  }
  return {viewed(c, call, x, sizes)};
}

Values unflatten(Context& c, const Call& call) {
  const Value x = call.value("self");
  const int axis = call.axis("dim", 0, x.axes.rank());
  Sizes sizes = x.axes.sizes(), parts = call.integers("sizes");
  sizes.erase(sizes.begin() + axis);
  const auto at = sizes.begin() + axis;
  sizes.insert(at, parts.begin(), parts.end());
  return {viewed(c, call, x, sizes)};
}

Values unsqueeze(Context&, const Call& call) {
  Value x = call.value("self");
  x.axes.insert_axis(call.axis("dim", 0, x.axes.rank() + 1));
  return {x};
}

Values squeeze(Context&, const Call& call) {
  Value x = call.value("self");
  std::vector<int> axes(x.axes.logical.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (call.has("dim")) {
    axes = call.axes("dim", x.axes.rank());
  }
  std::ranges::sort(axes, std::greater());
  for (const int axis : axes)
    if (x.axes.logical[std::size_t(axis)].empty()) x.axes.erase_axis(axis);
  return {x};
}

Values permute(Context&, const Call& call) {
  Value x = call.value("self");
  std::vector<int> order;
  for (const std::int64_t dim : call.integers("dims")) order.push_back(axis_number(dim, x.axes.rank()));
  std::vector<int> sorted = order;
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != int(i) || sorted.size() != x.axes.logical.size()) call.refuse("names an axis twice");
  x.axes.permute(order);
  return {x};
}

Values exchange(const Call& call, const char* first, const char* second) {
  Value x = call.value("self");
  const int rank = x.axes.rank();
  std::swap(x.axes.logical[std::size_t(call.axis(first, 0, rank))],
            x.axes.logical[std::size_t(call.axis(second, 1, rank))]);
  return {x};
}
Values transpose(Context&, const Call& call) { return exchange(call, "dim0", "dim1"); }
Values swap_axes(Context&, const Call& call) { return exchange(call, "axis0", "axis1"); }

Values matrix_transpose(Context&, const Call& call) {
  Value x = call.value("self");
  std::ranges::reverse(x.axes.logical);
  return {x};
}

// A parameter over the rows stays as it is: every row has it.
Values expand(Context& c, const Call& call) {
  Value x = call.value("self");
  Sizes to = call.integers("size");
  if (int(to.size()) < x.axes.rank()) call.refuse("has too few extents");
  while (x.axes.rank() < int(to.size())) x.axes.insert_axis(0);
  if (x.kind == Value::Kind::graph) return {expanded(c, call, c.plain(call, x), to)};
  for (int axis = 0; axis < x.axes.rank(); ++axis) {
    const std::int64_t size = to[std::size_t(axis)], now = x.axes.size(axis);
    if (size != -1 && size != now &&
        !(x.kind == Value::Kind::parameter && axis == 0 && now == 1 && size == rows_symbol))
      call.refuse("repeats elements of a parameter, which is possible over the rows only");
  }
  return {x};
}

Values expand_as(Context& c, const Call& call) {
  const Value x = call.computed("self");
  return {expanded(c, call, x, call.value("other").axes.sizes())};
}

Value element(const Call& call, Value x, int axis, std::int64_t index) {
  const std::int64_t size = x.axes.size(axis);
  if (size % rows_symbol == 0) call.refuse("takes some of the rows, which is not supported");
  if (index < -size || index >= size) call.refuse(fmt::format("takes element {} of {}", index, size));
  x.axes.select(axis, index < 0 ? index + size : index);
  return x;
}

Values select(Context&, const Call& call) {
  const Value x = call.value("self");
  return {element(call, x, call.axis("dim", 0, x.axes.rank()), call.integer("index", 0))};
}

Values unbind(Context&, const Call& call) {
  const Value x = call.value("self");
  const int axis = call.axis("dim", 0, x.axes.rank());
  if (x.axes.size(axis) > 1000) call.refuse("takes the elements of an axis that is too long");
  Values out;
  for (std::int64_t i = 0; i < x.axes.size(axis); ++i) out.push_back(element(call, x, axis, i));
  return out;
}

// Elements [begin, begin + count) of an axis.
Value part_of(Context& c, const Call& call, Value x, int axis, std::int64_t begin, std::int64_t count) {
  if (begin == 0 && count == x.axes.size(axis)) return x;
  const std::int64_t size = x.axes.size(axis);
  if (count < 0 || begin < 0 || begin > size || count > size - begin) call.refuse("takes no elements");
  if (count == 0) {
    Value nothing;
    nothing.kind = Value::Kind::nothing;
    Sizes sizes = x.axes.sizes();
    sizes[std::size_t(axis)] = 0;
    nothing.axes = Axes::contiguous(sizes);
    return nothing;
  }
  x = c.grouped(call, x, axis);
  const Atoms atoms = x.axes.logical[std::size_t(axis)];
  const int at = find_block(atoms, x.axes.stored);
  if (at < 1) call.refuse(fmt::format("takes some of the rows of {}, which is not supported", x.axes.text()));
  const Atoms before(x.axes.stored.begin() + 1, x.axes.stored.begin() + at);
  const Atoms after(x.axes.stored.begin() + at + std::ptrdiff_t(atoms.size()), x.axes.stored.end());
  const Shape shape = c.shape_of(x.axes, {before, atoms, after});
  const int out = c.builder.slice(c.layer_name(call), c.shaped(call, x.graph, shape), 2, begin, count);
  x.axes.replace_axis(axis, count);
  return graph_value(out, x.axes);
}

Values slice(Context& c, const Call& call) {
  const Value x = call.value("self");
  const int axis = call.axis("dim", 0, x.axes.rank());
  const std::int64_t size = x.axes.size(axis);
  const auto within = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
  const std::int64_t begin = within(call.integer("start", 0)), end = within(call.integer("end", size));
  if (const std::int64_t step = std::min(call.integer("step", 1), std::max<std::int64_t>(size, 1)); step != 1) {
    if (step < 1 || end <= begin) call.refuse("takes no elements");
    checked_count({(end - begin - 1) / step + 1});
    std::vector<std::int32_t> taken;
    for (std::int64_t at = begin; at < end && at < INT32_MAX; at += step) taken.push_back(std::int32_t(at));
    return {c.take(call, x, axis, std::move(taken))};
  }
  return {part_of(c, call, x, axis, begin, end - begin)};
}

Values narrow(Context& c, const Call& call) {
  const Value x = call.value("self");
  return {part_of(c, call, x, call.axis("dim", 0, x.axes.rank()), call.integer("start", 0), call.integer("length", 0))};
}

// Equal parts are elements of a new axis, which attention reads in place.
Values parts(Context& c, const Call& call, int axis, const Sizes& sizes) {
  const Value x = call.value("self");
  if (const auto constant = c.as_constant(x)) return parts_of_constant(*constant, axis, sizes);
  Values out;
  const bool equal = std::ranges::all_of(sizes, [&](std::int64_t size) { return size == sizes[0]; });
  if (equal && x.kind == Value::Kind::graph && sizes[0] > 0) {
    Sizes divided = x.axes.sizes();
    divided[std::size_t(axis)] = sizes[0];
    divided.insert(divided.begin() + axis, std::int64_t(sizes.size()));
    const Value whole = viewed(c, call, x, divided);
    for (std::size_t i = 0; i < sizes.size(); ++i) out.push_back(element(call, whole, axis, std::int64_t(i)));
    return out;
  }
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    out.push_back(part_of(c, call, x, axis, begin, size));
    begin += size;
  }
  return out;
}

Values split(Context& c, const Call& call) {
  const Value x = call.value("self");
  const int axis = call.axis("dim", 0, x.axes.rank());
  const std::int64_t size = x.axes.size(axis);
  Sizes sizes = call.integers(call.has("split_sizes") ? "split_sizes" : "split_size");
  if (call.has("chunks")) {
    const std::int64_t chunks = std::max<std::int64_t>(std::min(call.integer("chunks", 1), size), 1);
    sizes = {(size + chunks - 1) / chunks};
  }
  if (size % rows_symbol == 0 || sizes.empty() || sizes[0] < 1) call.refuse("divides the rows, or into no parts");
  if (!call.has("split_sizes")) {
    const std::int64_t one = sizes[0];
    sizes.clear();
    if (size / one > 1000) call.refuse("divides an axis into too many parts");
    for (std::int64_t left = size; left > 0; left -= one) sizes.push_back(std::min(one, left));
  }
  if (std::ranges::any_of(sizes, [&](std::int64_t one) { return one < 0 || one > size; }))
    call.refuse("has parts that do not fit");
  if (std::accumulate(sizes.begin(), sizes.end(), std::int64_t(0)) != size) call.refuse("has parts that do not fit");
  return parts(c, call, axis, sizes);
}

}  // namespace

void add_shapes(Operations& all) {
  for (const char* name : {"contiguous", "alias"}) all[name] = unchanged;
  all["clone"] = clone;
  for (const char* name : {"to", "_to_copy", "type_as"}) all[name] = cast;
  for (const char* name : {"view", "reshape", "_unsafe_view"}) all[name] = view;
  all["flatten"] = flatten;
  all["unflatten"] = unflatten;
  all["unsqueeze"] = unsqueeze;
  all["squeeze"] = squeeze;
  all["permute"] = permute;
  all["transpose"] = transpose;
  all["swapaxes"] = swap_axes;
  all["reshape_as"] = all["view_as"] = view_as;
  all["t"] = all["numpy_T"] = matrix_transpose;
  all["expand"] = expand;
  all["expand_as"] = expand_as;
  all["select"] = select;
  all["unbind"] = unbind;
  all["slice"] = slice;
  all["narrow"] = narrow;
  all["split"] = all["split_with_sizes"] = all["chunk"] = split;
}

}  // namespace millrace::pt2
