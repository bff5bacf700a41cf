// Values that are joined, class tokens, and elements that are repeated.
#include <fmt/core.h>

#include <algorithm>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {

// A position of zeros in front of the others, to which the token is added. The axes may be a view of (N, positions,
// width), which is the stored order.
Value with_token(Context& c, const Call& call, const Value& v) {
  const std::vector<std::int64_t> key{-1, v.graph, v.tensor};
  Value out = v;
  out.kind = Value::Kind::graph;
  if (const auto known = c.copies.find(key); known != c.copies.end()) {
    out.graph = known->second.graph;
    return out;
  }
  const std::int64_t width = c.program.tensors[std::size_t(v.tensor)].count();
  const std::int64_t positions = v.axes.count(Atoms(v.axes.stored.begin() + 1, v.axes.stored.end())) / width;
  checked_count({positions, width});
  std::vector<std::int32_t> order;
  for (std::int64_t at = -1; at + 1 < positions; ++at) order.push_back(std::int32_t(at));
  out.graph = c.take(call, graph_value(v.graph, Axes::contiguous({rows_symbol, positions - 1, width})), 1, order).graph;
  std::vector<std::int32_t> index(std::size_t(positions * width), -1);
  for (std::int64_t i = 0; i < width; ++i) index[std::size_t(i)] = std::int32_t(i);
  out.graph =
      c.builder.indexed_bias(c.layer_name(call, v.tensor), out.graph, width, Table<std::int32_t>(std::move(index)));
  Value token;
  token.tensor = v.tensor;
  token.axes = Axes::contiguous({width});
  c.attach(call, {Context::as_stored(token)});
  c.copies[key] = out;
  return out;
}

namespace {

// The class token in front of the positions of each row. The positions that are added next make a layer of both.
Value with_class_token(Context& c, const Call& call, const Value& token, Value x) {
  x = c.plain(call, x);
  const Axes& axes = x.axes;
  const bool fits = axes.rank() == 3 && axes.begins_with_rows() &&
                    concatenated({axes.logical[0], axes.logical[1], axes.logical[2]}) == axes.stored &&
                    token.kind == Value::Kind::parameter && !token.picked && token.axes.selected.empty() &&
                    token.axes.rank() == 3 && token.axes.sizes() == Sizes{1, 1, axes.size(2)};
  if (!fits)
    call.refuse(
        fmt::format("joins a parameter {} and {}. only a class token (1, 1, width) in front of (N, positions, "
                    "width) is supported",
                    token.axes.text(), axes.text()));
  Value out;
  out.kind = Value::Kind::class_token;
  out.tensor = token.tensor;
  const Shape shape{c.rows, axes.size(1), axes.size(2)};
  out.graph = c.shaped(call, x.graph, shape);
  out.axes = Axes::contiguous({rows_symbol, 1 + axes.size(1), axes.size(2)});
  return out;
}

void describe_axes(const Axes& axes, std::vector<std::int64_t>& out) {
  for (const Atoms& atoms : axes.logical) {
    out.push_back(-1);
    for (const int atom : atoms) out.push_back(axes.extents[std::size_t(atom)]);
  }
  out.push_back(-2);
  out.insert(out.end(), axes.stored.begin(), axes.stored.end());
}

// Of `part`, whose axes other than `axis` are aligned with those of `whole`: the atoms in the order of `whole`, with
// those of the axis together, behind `before` others.
Atoms joined_order(const Axes& whole, const Axes& part, int axis, std::size_t before) {
  Atoms out;
  const auto add_own = [&] {
    const Atoms& own = part.logical[std::size_t(axis)];
    out.insert(out.end(), own.begin(), own.end());
  };
  for (const int atom : without(whole.stored, whole.logical[std::size_t(axis)])) {
    if (out.size() == before) add_own();
    for (std::size_t list = 0; list < whole.logical.size(); ++list) {
      const auto at = std::ranges::find(whole.logical[list], atom);
      if (at != whole.logical[list].end())
        out.push_back(part.logical[list][std::size_t(at - whole.logical[list].begin())]);
    }
  }
  if (out.size() == before) add_own();
  return out;
}

// at_front: where neither has elements along the axis in its stored order, it becomes the outermost one of a row.
Value joined(Context& c, const Call& call, Value a, Value b, int axis, bool at_front = false) {
  a = c.grouped(call, a, axis);
  b = c.grouped(call, b, axis);
  const Atoms of_a = a.axes.logical[std::size_t(axis)], of_b = b.axes.logical[std::size_t(axis)];
  const std::int64_t first = a.axes.count(of_a), second = b.axes.count(of_b);
  Axes rest_a = a.axes, rest_b = b.axes;
  rest_a.logical[std::size_t(axis)].clear();
  rest_b.logical[std::size_t(axis)].clear();
  if (rest_a.sizes() != rest_b.sizes())
    call.refuse(fmt::format("joins {} and {}, which differ by more than one axis", a.axes.text(), b.axes.text()));
  if (!align(rest_a, rest_b, false))
    call.refuse(fmt::format("joins two values {} whose axes are divided in different ways", a.axes.text()));
  const auto begin_of = [&](const Atoms& own, const Axes& all) {
    return own.empty() ? at_front ? 1 : all.stored.size() : std::size_t(find_block(own, all.stored));
  };
  const std::size_t at = std::min(of_a.empty() ? begin_of(of_b, rest_b) : begin_of(of_a, rest_a), rest_a.stored.size());
  rest_a.logical[std::size_t(axis)] = of_a;
  rest_b.logical[std::size_t(axis)] = of_b;
  a.axes = rest_a;
  b.axes = rest_b;
  if (at < 1) call.refuse("joins rows, which is not supported");
  b = c.ordered(call, b, joined_order(rest_a, rest_b, axis, at));
  const Atoms others = without(rest_a.stored, of_a);
  const std::int64_t before = rest_a.count(Atoms(others.begin() + 1, others.begin() + std::ptrdiff_t(at)));
  const std::int64_t after = rest_a.count(Atoms(others.begin() + std::ptrdiff_t(at), others.end()));
  const auto parts = [&](const Value& v, std::int64_t size) {
    return c.shaped(call, v.graph, after == 1 ? Shape{c.rows, before, size} : Shape{c.rows, before, size, after});
  };
  const int left = parts(a, first), right = parts(b, second);
  const int out = c.builder.concat(c.layer_name(call), left, right, 2);
  rest_a.stored = others;
  rest_a.logical[std::size_t(axis)].clear();
  rest_a.replace_axis(axis, first + second, int(at));
  return graph_value(out, rest_a);
}

Values cat(Context& c, const Call& call) {
  Values all = call.values("tensors");
  std::erase_if(all, [](const Value& v) { return v.kind == Value::Kind::nothing; });
  if (all.empty()) call.refuse("joins nothing");
  const int axis = call.axis("dim", 0, all[0].axes.rank());
  if (all[0].kind == Value::Kind::parameter && axis == 1 && all.back().kind != Value::Kind::parameter) {
    Value x = all.back();
    for (std::size_t i = all.size() - 1; i-- > 0;) x = with_class_token(c, call, all[i], x);
    return {x};
  }
  if (axis == 0) call.refuse("joins rows, which is not supported");
  Value out = c.plain(call, all[0]);
  std::vector<std::int64_t> key{axis, out.graph};
  describe_axes(out.axes, key);
  for (std::size_t i = 1; i < all.size(); ++i) {
    const Value next = c.plain(call, all[i]);
    if (next.axes.rank() != out.axes.rank()) call.refuse("joins values of different numbers of axes");
    key.push_back(next.graph);
    describe_axes(next.axes, key);
    const auto known = c.joined.find(key);  // of a dense block, which joins one more each time
    out = known != c.joined.end() ? known->second : joined(c, call, out, next, axis);
    c.joined[key] = out;
  }
  out.memory = -1;
  return {out};
}

// Joins the extents along a new axis.
Values stack(Context& c, const Call& call) {
  Values all = call.values("tensors");
  if (all.empty()) call.refuse("joins nothing");
  const int axis = call.axis("dim", 0, all[0].axes.rank() + 1);
  if (axis == 0) call.refuse("puts an axis in front of the rows, which is not supported");
  Value out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    Value next = c.plain(call, all[i]);
    if (next.axes.rank() != all[0].axes.rank()) call.refuse("joins values of different numbers of axes");
    next.axes.insert_axis(axis);
    out = i == 0 ? next : joined(c, call, out, next, axis, true);
  }
  out.memory = -1;
  return {out};
}

// `by_element`: 0 0 1 1; otherwise 0 1 0 1.
Value repeated_along(Context& c, const Call& call, const Value& x, int axis, std::int64_t times, bool by_element) {
  const std::int64_t size = x.axes.size(axis);
  if (times == 1) return x;
  if (size % rows_symbol == 0 || times < 1 || times % rows_symbol == 0)
    call.refuse("repeats the rows, or nothing, which is not supported");
  checked_count({size, times});
  std::vector<std::int32_t> index;
  for (std::int64_t i = 0; i < size * times; ++i) index.push_back(std::int32_t(by_element ? i / times : i % size));
  return c.take(call, x, axis, std::move(index));
}

// A parameter is repeated over the rows only, where it stays as it is: every row has it.
Values repeat(Context& c, const Call& call) {
  Value x = call.value("self");
  const Sizes times = call.integers("repeats");
  if (int(times.size()) < x.axes.rank()) call.refuse("has too few numbers");
  while (x.axes.rank() < int(times.size())) x.axes.insert_axis(0);
  if (x.kind != Value::Kind::parameter) x = c.plain(call, x);
  for (int axis = 0; axis < x.axes.rank(); ++axis) {
    const std::int64_t of_axis = times[std::size_t(axis)];
    const bool over_rows = axis == 0 && of_axis == rows_symbol;
    if (x.kind == Value::Kind::graph && over_rows && x.axes.size(0) == rows_symbol &&
        std::ranges::none_of(c.inputs, [&](int input) { return c.builder.depends_on(x.graph, input); }))
      continue;  // made of constants, for each row
    if (x.kind == Value::Kind::graph)
      x = repeated_along(c, call, x, axis, of_axis, false);
    else if (of_axis != 1 && !(over_rows && x.axes.size(0) == 1))
      call.refuse("repeats elements of a parameter, which is possible over the rows only");
  }
  return {x};
}

Values repeat_interleave(Context& c, const Call& call) {
  const Value x = call.computed("self");
  if (!call.is_integer("repeats") || !call.has("dim"))
    call.refuse("repeats elements in different ways, or of all axes, which is not supported");
  return {repeated_along(c, call, x, call.axis("dim", 0, x.axes.rank()), call.integer("repeats", 1), true)};
}

}  // namespace

void add_joins(Operations& all) {
  all["cat"] = all["concat"] = cat;
  all["stack"] = stack;
  all["repeat"] = repeat;
  all["repeat_interleave"] = repeat_interleave;
}

}  // namespace millrace::pt2
