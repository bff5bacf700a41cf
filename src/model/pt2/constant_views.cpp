// Views of constants, and elements of them by index.
#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"
#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

using View = void (*)(const Call&, Constant&);

void same(const Call&, Constant&) {}
void cloned(const Call&, Constant& x) { x = x.copy(); }

void reshape(const Call& call, Constant& x) {
  x = x.reshaped(without_rows(call.integers(call.has("size") ? "size" : "shape")));
}

void flattened(const Call& call, Constant& x) {
  if (x.rank() == 0) {
    x = x.reshaped({1});
    return;
  }
  const auto begin = std::size_t(call.axis("start_dim", 0, x.rank())),
             end = std::size_t(call.axis("end_dim", -1, x.rank()));
  Sizes sizes = x.sizes;
  for (std::size_t axis = end; axis > begin; --axis) {
    sizes[axis - 1] *= sizes[axis];
    sizes.erase(sizes.begin() + std::ptrdiff_t(axis));
  }
  x = x.reshaped(sizes);
}

void unsqueezed(const Call& call, Constant& x) {
  const int axis = call.axis("dim", 0, x.rank() + 1);
  x.sizes.insert(x.sizes.begin() + axis, 1);
  x.strides.insert(x.strides.begin() + axis, 0);
}

void squeezed(const Call& call, Constant& x) {
  std::vector<bool> asked(x.sizes.size(), !call.has("dim"));
  if (call.has("dim"))
    for (const std::int64_t dim : call.integers("dim")) asked[std::size_t(axis_number(dim, x.rank()))] = true;
  for (std::size_t axis = x.sizes.size(); axis-- > 0;)
    if (asked[axis] && x.sizes[axis] == 1) {
      x.sizes.erase(x.sizes.begin() + std::ptrdiff_t(axis));
      x.strides.erase(x.strides.begin() + std::ptrdiff_t(axis));
    }
}

void permuted(const Call& call, Constant& x) {
  Constant out = x;
  const Sizes dims = call.integers("dims");
  if (dims.size() != x.sizes.size()) call.refuse("does not name each axis");
  std::vector<bool> used(dims.size());
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const auto from = std::size_t(axis_number(dims[i], x.rank()));
    if (used[from]) call.refuse("names an axis twice");
    used[from] = true;
    out.sizes[i] = x.sizes[from];
    out.strides[i] = x.strides[from];
  }
  x = out;
}

void exchange_axes(Constant& x, int a, int b) {
  std::swap(x.sizes[std::size_t(a)], x.sizes[std::size_t(b)]);
  std::swap(x.strides[std::size_t(a)], x.strides[std::size_t(b)]);
}
void transposed(const Call& call, Constant& x) {
  exchange_axes(x, call.axis("dim0", 0, x.rank()), call.axis("dim1", 1, x.rank()));
}
void matrix_transposed(const Call&, Constant& x) {
  if (x.rank() == 2) exchange_axes(x, 0, 1);
}

void repeated_axes(const Call& call, Constant& x) { x = x.expanded(without_rows(call.integers("size"))); }

void selected(const Call& call, Constant& x) {
  const auto axis = std::size_t(call.axis("dim", 0, x.rank()));
  const std::int64_t size = x.sizes[axis], index = call.integer("index", 0);
  if (index < -size || index >= size) call.refuse(fmt::format("takes element {} of {}", index, size));
  x.offset += (index < 0 ? index + size : index) * x.strides[axis];
  x.sizes.erase(x.sizes.begin() + std::ptrdiff_t(axis));
  x.strides.erase(x.strides.begin() + std::ptrdiff_t(axis));
}

void sliced(const Call& call, Constant& x) {
  const auto axis = std::size_t(call.axis("dim", 0, x.rank()));
  const std::int64_t size = x.sizes[axis], step = call.integer("step", 1);
  const auto within = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
  const std::int64_t begin = within(call.integer("start", 0)), end = within(call.integer("end", size));
  if (step < 1) call.refuse("has a step below 1");
  x.offset += begin * x.strides[axis];
  x.sizes[axis] = end <= begin ? 0 : (end - begin - 1) / step + 1;
  x.strides[axis] *= std::min(step, std::max<std::int64_t>(size, 1));
  if (x.sizes[axis] == 0) x.offset = 0;
}

const std::map<std::string, View>& views() {
  static const std::map<std::string, View> all{{"contiguous", same},
                                               {"alias", same},
                                               {"detach", same},
                                               {"clone", cloned},
                                               {"lift_fresh_copy", cloned},
                                               {"view", reshape},
                                               {"reshape", reshape},
                                               {"_unsafe_view", reshape},
                                               {"flatten", flattened},
                                               {"unsqueeze", unsqueezed},
                                               {"squeeze", squeezed},
                                               {"permute", permuted},
                                               {"transpose", transposed},
                                               {"t", matrix_transposed},
                                               {"expand", repeated_axes},
                                               {"select", selected},
                                               {"slice", sliced}};
  return all;
}

}  // namespace

bool is_constant_view(const std::string& kind) { return views().contains(kind); }

Constant constant_view(const Call& call, Constant x, const std::string& kind) {
  views().at(kind)(call, x);
  return x;
}

Values parts_of_constant(const Constant& x, int axis, const Sizes& sizes) {
  Values out;
  Constant part = x;
  for (const std::int64_t size : sizes) {
    part.sizes[std::size_t(axis)] = size;
    out.push_back(constant_value(part));
    part.offset += size * part.strides[std::size_t(axis)];
  }
  return out;
}

// As in NumPy: the axes of the indices take the place of the axes that they index, or come first if those are apart.
Constant index_constant(const Call& call, const Constant& x) {
  const std::vector<std::optional<Index>> indices = call.indices();
  if (indices.empty() || indices.size() > x.sizes.size()) call.refuse("has more indices than axes");
  Sizes of_indices;
  std::vector<std::size_t> indexed;
  for (std::size_t axis = 0; axis < indices.size(); ++axis)
    if (indices[axis]) {
      const Constant& index = indices[axis]->constant;
      if (index.type != Constant::Type::integer) call.refuse("is indexed by a mask, which is not supported");
      if (indices[axis]->of_rows && x.sizes[axis] != 1)  // an axis of the rows has one element
        call.refuse("takes another element for each row, which is not supported");
      of_indices = broadcast_sizes(of_indices, index.sizes);
      indexed.push_back(axis);
    }
  if (indexed.empty()) call.refuse("has no index");
  const bool together = indexed.back() - indexed.front() + 1 == indexed.size();
  const std::size_t front = together ? indexed.front() : 0;
  std::vector<std::int64_t> starts(std::size_t(checked_count(of_indices)), x.offset);
  for (const std::size_t axis : indexed) {
    const std::vector<double> index = indices[axis]->constant.expanded(of_indices).values();
    const double size = double(x.sizes[axis]);
    for (std::size_t i = 0; i < starts.size(); ++i) {
      if (!(index[i] >= -size && index[i] < size)) call.refuse(fmt::format("has the index {} of {}", index[i], size));
      starts[i] += std::int64_t(index[i] < 0 ? index[i] + size : index[i]) * x.strides[axis];
    }
  }
  Constant rest = x;  // without the axes that are indexed
  for (std::size_t i = indexed.size(); i-- > 0;) {
    rest.sizes.erase(rest.sizes.begin() + std::ptrdiff_t(indexed[i]));
    rest.strides.erase(rest.strides.begin() + std::ptrdiff_t(indexed[i]));
  }
  const auto cut = std::ptrdiff_t(front);
  Constant before = rest, after = rest;
  before.sizes.assign(rest.sizes.begin(), rest.sizes.begin() + cut);
  before.strides.assign(rest.strides.begin(), rest.strides.begin() + cut);
  after.sizes.assign(rest.sizes.begin() + cut, rest.sizes.end());
  after.strides.assign(rest.strides.begin() + cut, rest.strides.end());
  Sizes sizes = before.sizes;
  sizes.insert(sizes.end(), of_indices.begin(), of_indices.end());
  sizes.insert(sizes.end(), after.sizes.begin(), after.sizes.end());
  if (checked_count(sizes) == 0) return Constant::filled(sizes, 0, x.type);
  std::vector<double> out;
  before.offset = 0;
  const double* const first = x.data->data();
  before.each([&](double& outer) {
    for (const std::int64_t start : starts) {
      after.offset = start + (&outer - first);
      after.each([&](double& value) { out.push_back(value); });
    }
  });
  return Constant::of(sizes, std::move(out), x.type);
}

Constant places_of(const Axes& axes) {
  const std::int64_t count = checked_count(axes.sizes());
  const auto step_of = [&](int atom) {
    return axes.count(Atoms(std::ranges::find(axes.stored, atom) + 1, axes.stored.end()));
  };
  std::int64_t first = 0;
  for (const auto& [atom, index] : axes.selected) first += index * step_of(atom);
  std::vector<double> places{double(first)};
  for (const Atoms& axis : axes.logical)
    for (const int atom : axis) {
      const std::int64_t extent = axes.extents[std::size_t(atom)], step = step_of(atom);
      std::vector<double> next;
      for (const double outer : places)
        for (std::int64_t i = 0; i < extent; ++i) next.push_back(outer + double(i * step));
      places = std::move(next);
    }
  if (std::int64_t(places.size()) != count) fail(Exit::internal, "internal error: places of {}", axes.text());
  return Constant::of(axes.sizes(), std::move(places), Constant::Type::integer);
}

Value constant_value(const Constant& x) {
  Value out;
  out.kind = Value::Kind::constant;
  out.constant = std::make_shared<const Constant>(x);
  out.axes = Axes::contiguous(x.sizes);
  return out;
}

Constant parameter_places(const Value& v) {
  Constant places = places_of(v.axes);
  if (!v.picked) return places;
  const std::vector<double> picked = v.picked->values();
  for (double& place : *places.data) place = picked[std::size_t(place)];
  return places;
}

}  // namespace millrace::pt2
