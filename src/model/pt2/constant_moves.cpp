// Constants whose elements are joined, repeated, taken or subtracted along an axis.
#include <fmt/core.h>

#include <utility>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

std::vector<Constant> parts_of(Context& c, const Call& call) {
  std::vector<Constant> parts;
  for (const Value& v : call.values("tensors")) parts.push_back(*c.as_constant(v));
  if (parts.empty()) call.refuse("joins nothing");
  return parts;
}

Constant joined_parts(const Call& call, const std::vector<Constant>& parts, std::size_t axis) {
  Sizes sizes = parts[0].sizes;
  Constant::Type type = parts[0].type;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    Sizes own = parts[i].sizes;
    if (own.size() != sizes.size()) call.refuse("joins constants of different numbers of axes");
    sizes[axis] += std::exchange(own[axis], sizes[axis]);
    own[axis] = sizes[axis];
    if (own != sizes) call.refuse("joins constants that differ by more than one axis");
    type = std::max(type, parts[i].type);
  }
  Constant out = Constant::filled(sizes, 0, type);
  for (const Constant& part : parts) {
    Constant place = out;
    place.sizes = part.sizes;
    const std::vector<double> values = part.values();
    std::size_t i = 0;
    place.each([&](double& to) { to = values[i++]; });
    out.offset += part.sizes[axis] * out.strides[axis];
  }
  out.offset = 0;
  return out;
}

// Without the first element of an axis, or without the last one.
Constant without_end(Constant x, std::size_t axis, bool first) {
  if (first) x.offset += x.strides[axis];
  --x.sizes[axis];
  return x;
}

}  // namespace

Constant joined_constants(Context& c, const Call& call) {
  const std::vector<Constant> parts = parts_of(c, call);
  return joined_parts(call, parts, std::size_t(call.axis("dim", 0, parts[0].rank())));
}

Constant selected_constant(Context&, const Call& call) {
  const Constant x = call.constant("self"), index = call.constant("index");
  const auto axis = std::size_t(call.axis("dim", 0, x.rank()));
  if (index.type != Constant::Type::integer || index.rank() > 1 || index.count() < 1)
    call.refuse("has an index that is no list of numbers");
  std::vector<Constant> parts;
  for (const double at : index.values()) {
    if (!(at >= 0 && at < double(x.sizes[axis]))) call.refuse(fmt::format("takes element {} of {}", at, x.sizes[axis]));
    Constant& part = parts.emplace_back(x);
    part.sizes[axis] = 1;
    part.offset += std::int64_t(at) * x.strides[axis];
  }
  return joined_parts(call, parts, axis);
}

Constant stacked_constants(Context& c, const Call& call) {
  std::vector<Constant> parts = parts_of(c, call);
  const auto axis = std::size_t(call.axis("dim", 0, parts[0].rank() + 1));
  for (Constant& part : parts) {
    if (part.rank() < int(axis)) call.refuse("joins constants of different numbers of axes");
    Sizes sizes = part.sizes;
    sizes.insert(sizes.begin() + std::ptrdiff_t(axis), 1);
    part = part.reshaped(sizes);
  }
  return joined_parts(call, parts, axis);
}

Constant repeated_constant(Context&, const Call& call) {
  const Constant x = call.constant("self");
  const Sizes times = without_rows(call.integers("repeats"));
  if (times.size() < x.sizes.size()) call.refuse("has too few numbers");
  Sizes apart, repeated, whole;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const std::size_t added = times.size() - x.sizes.size();
    const std::int64_t size = i < added ? 1 : x.sizes[i - added];
    apart.insert(apart.end(), {1, size});
    repeated.insert(repeated.end(), {times[i], size});
    checked_count({times[i], size});
    whole.push_back(times[i] * size);
  }
  return x.reshaped(apart).expanded(repeated).reshaped(whole);
}

// out[i, j] = self[i, index[i, j]] for the axis 1.
Constant gathered(Context&, const Call& call) {
  const Constant x = call.constant("self"), index = call.constant("index");
  const auto axis = std::size_t(call.axis("dim", 0, x.rank()));
  if (index.rank() != x.rank() || index.type != Constant::Type::integer) call.refuse("has an index that does not fit");
  Constant part = x;  // the elements that have the number 0 in the axis
  part.sizes = index.sizes;
  for (std::size_t other = 0; other < x.sizes.size(); ++other)
    if (other != axis && index.sizes[other] > x.sizes[other]) call.refuse("has an index that does not fit");
  part.strides[axis] = 0;
  const std::vector<double> which = index.values();
  std::vector<double> out;
  const double* const first = x.data->data();
  part.each([&](const double& value) {
    const double number = which[out.size()];
    if (!(number >= 0 && number < double(x.sizes[axis])))
      call.refuse(fmt::format("has the index {} of {}", number, x.sizes[axis]));
    out.push_back(first[(&value - first) + std::int64_t(number) * x.strides[axis]]);
  });
  return Constant::of(index.sizes, std::move(out), x.type);
}

Constant differences(Context&, const Call& call) {
  Constant x = call.constant("self");
  if (x.rank() == 0) call.refuse("takes differences of what has no axis");
  const auto axis = std::size_t(call.axis("dim", -1, x.rank()));
  std::vector<Constant> parts{x};
  if (call.has("prepend")) parts.insert(parts.begin(), call.constant("prepend"));
  if (call.has("append")) parts.push_back(call.constant("append"));
  x = joined_parts(call, parts, axis);
  constexpr std::int64_t most = 16;
  if (call.integer("n", 1) > most) call.refuse(fmt::format("takes differences more than {} times", most));
  for (std::int64_t times = call.integer("n", 1); times > 0; --times) {
    if (x.sizes[axis] < 2) call.refuse("takes differences of less than two elements");
    std::vector<double> out = without_end(x, axis, true).values();
    const std::vector<double> before = without_end(x, axis, false).values();
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] -= before[i];
      if (x.type == Constant::Type::boolean) out[i] = double(out[i] != 0);
    }
    Sizes sizes = x.sizes;
    --sizes[axis];
    x = Constant::of(sizes, std::move(out), x.type);
  }
  return x;
}

// Each element of an axis several times in a row.
Constant repeated_elements(Context&, const Call& call) {
  Constant x = call.constant("self");
  if (!call.has("dim") || !call.is_integer("repeats") || x.rank() == 0)
    call.refuse("repeats elements of all axes, or by several numbers, which is not supported");
  const int axis = call.axis("dim", 0, x.rank());
  Sizes sizes = x.sizes, result = x.sizes;
  const std::int64_t times = call.integer("repeats", 1);
  x.sizes.insert(x.sizes.begin() + axis + 1, 1);
  x.strides.insert(x.strides.begin() + axis + 1, 0);
  sizes.insert(sizes.begin() + axis + 1, times);
  result[std::size_t(axis)] = checked_count({sizes[std::size_t(axis)], times});
  return x.expanded(sizes).copy().reshaped(result);
}

}  // namespace millrace::pt2
