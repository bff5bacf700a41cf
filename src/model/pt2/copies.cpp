// Copies of values with their elements in another order.
#include <fmt/core.h>

#include <algorithm>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

constexpr std::int64_t largest_table = std::int64_t(1) << 24;

void require_table(const Call& call, std::int64_t entries) {
  if (entries > largest_table)
    call.refuse(fmt::format("moves {} blocks of each row, which is more than is supported (2^24)", entries));
}

// The atoms of `order` in an index: how many blocks each of them counts in the stored order.
struct Strides {
  std::vector<std::int64_t> extents, steps;
  std::int64_t first = 0;  // of the selected elements
};

Strides strides_of(const Axes& axes, const Atoms& from, const Atoms& to) {
  Strides out;
  const auto step_of = [&](int atom) { return axes.count(Atoms(std::ranges::find(from, atom) + 1, from.end())); };
  for (const int atom : to) {
    out.extents.push_back(axes.extents[std::size_t(atom)]);
    out.steps.push_back(step_of(atom));
  }
  for (const auto& [atom, index] : axes.selected)
    if (std::ranges::find(from, atom) != from.end()) out.first += index * step_of(atom);
  return out;
}

std::vector<std::int32_t> indices_of(const Strides& s) {
  std::vector<std::int32_t> out;
  std::vector<std::int64_t> at(s.extents.size(), 0);
  for (std::int64_t now = s.first;;) {
    out.push_back(std::int32_t(now));
    std::size_t axis = at.size();
    for (; axis-- > 0;) {
      now += s.steps[axis];
      if (++at[axis] < s.extents[axis]) break;
      now -= s.extents[axis] * s.steps[axis];
      at[axis] = 0;
    }
    if (axis >= at.size()) return out;
  }
}

// Of a copy: the value, its stored extents and where each of them goes.
std::vector<std::int64_t> key_of(const Value& v, const Atoms& order) {
  std::vector<std::int64_t> key{v.graph};
  for (const int atom : v.axes.stored) {
    key.push_back(v.axes.extents[std::size_t(atom)]);
    key.push_back(std::ranges::find(order, atom) - order.begin());
    for (const auto& [selected, index] : v.axes.selected)
      if (selected == atom) key.push_back(-1 - index);
  }
  return key;
}

}  // namespace

Value Context::ordered(const Call& call, const Value& v, const Atoms& order) {
  if (v.kind != Value::Kind::graph) return ordered(call, plain(call, v), order);
  const Axes& axes = v.axes;
  Atoms selected;
  for (const auto& [atom, index] : axes.selected) selected.push_back(atom);
  if (without(axes.stored, selected) == order) return plain(call, v);
  if (order.empty() || order[0] != axes.stored[0] || axes.extents[std::size_t(order[0])] != rows_symbol)
    call.refuse(fmt::format("needs another order of {}, which moves elements between rows", axes.text()));
  const auto key = key_of(v, order);
  Value out = v;
  out.axes.stored = order;
  out.axes.selected.clear();
  out.memory = -1;
  if (const auto known = copies.find(key); known != copies.end()) {
    out.graph = known->second.graph;
    return out;
  }
  const auto outer_end = std::ranges::mismatch(order, axes.stored);
  const auto inner_end = std::mismatch(order.rbegin(), std::make_reverse_iterator(outer_end.in1), axes.stored.rbegin(),
                                       std::make_reverse_iterator(outer_end.in2));
  const Atoms to(outer_end.in1, inner_end.first.base()), from(outer_end.in2, inner_end.second.base());
  const std::int64_t size = axes.count(Atoms(inner_end.first.base(), order.end()));
  const std::int64_t positions = axes.count(Atoms(order.begin() + 1, inner_end.first.base()));
  require_table(call, axes.count(from));
  out.graph = builder.gather(layer_name(call) + ".order", v.graph,
                             size == 1 ? Shape{rows, positions} : Shape{rows, positions, size}, size,
                             Table<std::int32_t>(indices_of(strides_of(axes, from, to))));
  copies[key] = out;
  return out;
}

Value Context::contiguous(const Call& call, const Value& v) {
  Atoms order;
  for (const Atoms& axis : v.axes.logical) order.insert(order.end(), axis.begin(), axis.end());
  return ordered(call, v, order);
}

Value Context::grouped(const Call& call, const Value& v, int axis) {
  const Atoms own = v.axes.logical[std::size_t(axis)];
  if (own.empty() || find_block(own, v.axes.stored) >= 0) return plain(call, v);
  Atoms order;
  Atoms selected;
  for (const auto& [atom, index] : v.axes.selected) selected.push_back(atom);
  for (const int atom : without(v.axes.stored, selected))
    if (std::ranges::find(own, atom) == own.end())
      order.push_back(atom);
    else if (std::ranges::find(order, own[0]) == order.end())
      order.insert(order.end(), own.begin(), own.end());
  return ordered(call, v, order);
}

Value Context::take(const Call& call, Value v, int axis, std::vector<std::int32_t> indices) {
  if (v.axes.size(axis) % rows_symbol == 0) call.refuse("takes some of the rows, which is not supported");
  if (indices.empty()) call.refuse("takes no elements");
  v = grouped(call, v, axis);
  bool same = std::int64_t(indices.size()) == v.axes.size(axis);
  for (std::size_t i = 0; i < indices.size(); ++i) same = same && indices[i] == std::int32_t(i);
  if (same) return v;
  const Atoms own = v.axes.logical[std::size_t(axis)];
  int at = find_block(own, v.axes.stored);
  if (own.empty()) {  // in front of the first atom of the axes behind it
    at = int(v.axes.stored.size());
    for (std::size_t later = std::size_t(axis); later < v.axes.logical.size() && own.empty(); ++later)
      if (const Atoms& atoms = v.axes.logical[later]; !atoms.empty()) {
        at = std::min(at, find_block({atoms[0]}, v.axes.stored));
        break;
      }
  }
  if (at < 1) call.refuse("takes elements of an axis that is stored before the rows, which is not supported");
  const auto begin = v.axes.stored.begin() + at, end = begin + std::ptrdiff_t(own.size());
  const std::int64_t before = v.axes.count(Atoms(v.axes.stored.begin() + 1, begin)),
                     after = v.axes.count(Atoms(end, v.axes.stored.end())), count = std::int64_t(indices.size());
  require_table(call, count);
  const Shape to = after == 1 ? Shape{rows, before, count} : Shape{rows, before, count, after};
  v.graph = builder.gather(layer_name(call), v.graph, to, after, Table<std::int32_t>(std::move(indices)));
  v.memory = -1;
  v.axes.replace_axis(axis, count, at);
  return v;
}

}  // namespace millrace::pt2
