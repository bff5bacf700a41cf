// Sums and products of values with what is the same for all rows: numbers, constants and parameters.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

// A tensor that is repeated to the extents of a value: for the elements of a row of the value, in its stored order, the
// element of the tensor. Element e of a row has index[e / inner % index.size()].
struct Repeated {
  std::vector<std::int32_t> index;
  std::int64_t inner = 1;
};

Repeated repeated(const Call& call, Axes x, const Sizes& small_sizes) {
  Axes small = Axes::contiguous(small_sizes);
  const auto do_not_fit = [&] {
    call.refuse(fmt::format("combines {} and {}, whose extents do not fit", x.text(), small.text()));
  };
  while (small.rank() < x.rank()) small.insert_axis(0);
  if (small.rank() != x.rank() || !align(x, small, true)) do_not_fit();
  struct Extent {
    std::int64_t count, step;
  };
  std::vector<Extent> extents;
  for (const int atom : x.stored)
    for (std::size_t axis = 0; axis < x.logical.size(); ++axis) {
      const auto at = std::ranges::find(x.logical[axis], atom);
      if (at == x.logical[axis].end()) continue;
      const std::int64_t count = x.extents[std::size_t(atom)];
      if (small.logical[axis].empty()) {
        extents.push_back({count, 0});
        continue;
      }
      if (small.size(int(axis)) != x.size(int(axis))) do_not_fit();
      const int own = small.logical[axis][std::size_t(at - x.logical[axis].begin())];
      extents.push_back({count, small.count(Atoms(std::ranges::find(small.stored, own) + 1, small.stored.end()))});
    }
  for (std::size_t axis = 0; axis < x.logical.size(); ++axis)
    if (small.size(int(axis)) != 1 && small.size(int(axis)) != x.size(int(axis))) do_not_fit();
  Repeated out;
  while (!extents.empty() && extents.back().step == 0) {
    out.inner *= extents.back().count;
    extents.pop_back();
  }
  const auto first = std::ranges::find_if(extents, [](const Extent& e) { return e.step != 0; });
  extents.erase(extents.begin(), first);
  Sizes counts;
  for (const Extent& e : extents) counts.push_back(e.count);
  checked_count(counts);
  out.index.push_back(0);
  for (const Extent& e : extents) {
    std::vector<std::int32_t> next;
    next.reserve(out.index.size() * std::size_t(e.count));
    for (const std::int32_t outer : out.index)
      for (std::int64_t i = 0; i < e.count; ++i) next.push_back(std::int32_t(outer + i * e.step));
    out.index = std::move(next);
  }
  if (extents.empty()) out.inner = 1;
  return out;
}

// The sizes of a result, with the rows.
Sizes result_sizes(const Axes& x, const Sizes& small) {
  Sizes out = x.sizes();
  if (small.size() > out.size()) return out;
  for (std::size_t i = 0; i < small.size(); ++i) {
    std::int64_t& to = out[out.size() - small.size() + i];
    if (to == 1) to = small[i];
  }
  return out;
}

Table<float> entries(const Constant& of, const Sizes& sizes, const Repeated& r) {
  if (of.count() == 1) return {float(of.values()[0])};
  const std::vector<double> values = of.expanded(sizes).values();
  std::vector<float> out;
  for (const std::int32_t i : r.index) out.push_back(float(values[std::size_t(i)]));
  return Table<float>(std::move(out));
}

bool is_number(const Constant& x, double number) { return x.count() == 1 && x.values()[0] == number; }

}  // namespace

Value expanded(Context& c, const Call& call, Value x, const Sizes& to) {
  if (std::int64_t(to.size()) != x.axes.rank()) call.refuse("repeats a value to another number of axes");
  for (std::size_t axis = 0; axis < to.size(); ++axis) {
    const std::int64_t now = x.axes.size(int(axis));
    if (to[axis] == -1 || to[axis] == now) continue;
    if (now != 1 || to[axis] < 1 || to[axis] % rows_symbol == 0)
      call.refuse(fmt::format("repeats {} over an axis that has several elements, or over the rows", x.axes.text()));
    checked_count({to[axis]});
    x = c.take(call, x, int(axis), std::vector<std::int32_t>(std::size_t(to[axis]), 0));
  }
  return x;
}

Value affine(Context& c, const Call& call, Value x, const Constant& scale, const Constant& offset) {
  x = c.plain(call, x);
  if (is_number(scale, 1) && is_number(offset, 0)) return x;
  const Sizes sizes = broadcast_sizes(scale.sizes, offset.sizes);
  x = expanded(c, call, x, result_sizes(x.axes, sizes));
  const Repeated r = repeated(call, x.axes, sizes);
  x.graph = c.builder.affine(c.layer_name(call), x.graph, entries(scale, sizes, r), entries(offset, sizes, r), r.inner);
  x.memory = -1;
  return x;
}

Value with_bias(Context& c, const Call& call, Value x, const Value& parameter) {
  x = c.plain(call, x);
  const Constant places = parameter_places(parameter);
  x = expanded(c, call, x, result_sizes(x.axes, places.sizes));
  const Repeated r = repeated(call, x.axes, places.sizes);
  const std::vector<double> values = places.values();
  std::vector<std::int32_t> index;
  checked_count({std::int64_t(r.index.size()), r.inner});
  for (const std::int32_t i : r.index)
    index.insert(index.end(), std::size_t(r.inner), std::int32_t(values[std::size_t(i)]));
  const std::int64_t count = c.program.tensors[std::size_t(parameter.tensor)].count();
  x.graph = c.builder.indexed_bias(c.layer_name(call, parameter.tensor), x.graph, checked_count({count}),
                                   Table<std::int32_t>(std::move(index)));
  x.memory = -1;
  Value whole;
  whole.tensor = parameter.tensor;
  whole.axes = Axes::contiguous({count});
  c.attach(call, {Context::as_stored(whole)});
  return x;
}

}  // namespace millrace::pt2
