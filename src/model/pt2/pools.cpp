// Pooling, means and upsampling: operations on the extents of an image or a volume.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

Sizes by_dimension(const Call& call, const char* argument, int rank, const Sizes& otherwise) {
  Sizes given = call.integers(argument, otherwise);
  if (given.empty()) given = otherwise;  // "stride": [] is the kernel
  if (given.size() == 1) given.resize(std::size_t(rank), given[0]);
  if (given.size() != std::size_t(rank)) call.refuse(fmt::format("has a '{}' of {} numbers", argument, given.size()));
  return given;
}

Value pooled(Context& c, const Call& call, const Value& x, PoolSpec::Kind kind, const Window& window,
             bool ceil_mode = false) {
  const int out = c.builder.pool(c.layer_name(call), c.image(call, x), kind, window, ceil_mode);
  const Shape& shape = c.builder.shape(out);
  Sizes spatial(std::size_t(x.axes.rank() - 2), 1);
  for (int axis = 1; axis + 1 < shape.rank; ++axis) spatial[std::size_t(axis) - 1] = shape[axis];
  return graph_value(out, Axes::image(shape[-1], spatial));
}

Constant product(const Constant& a, const Constant& b) {
  const Sizes sizes = broadcast_sizes(a.sizes, b.sizes);
  Constant out = a.expanded(sizes).copy();
  const std::vector<double> other = b.expanded(sizes).values();
  for (std::size_t i = 0; i < other.size(); ++i) (*out.data)[i] *= other[i];
  return out;
}

// An average that counts its padding becomes one that does not.
Value without_padding(Context& c, const Call& call, const Axes& from, const Window& w, const Value& mean) {
  Constant factor = Constant::filled({}, 1);
  for (int axis = 2; axis < from.rank(); ++axis) {
    const auto dim = std::size_t(axis) - 2;
    Sizes sizes(std::size_t(from.rank()), 1);
    sizes[std::size_t(axis)] = mean.axes.size(axis);
    std::vector<double> of_axis;
    for (std::int64_t i = 0; i < mean.axes.size(axis); ++i) {
      const std::int64_t begin = i * w.stride[dim] - w.pad[dim], end = begin + w.kernel[dim];
      const std::int64_t inside = std::min(end, from.size(axis)) - std::max<std::int64_t>(begin, 0);
      if (inside < 1) call.refuse("has a window without an element of the image");
      of_axis.push_back(double(w.kernel[dim]) / double(inside));
    }
    factor = product(factor, Constant::of(sizes, std::move(of_axis), Constant::Type::real));
  }
  return affine(c, call, mean, factor, Constant::filled({}, 0));
}

Values pool(Context& c, const Call& call, PoolSpec::Kind kind) {
  const Value x = call.computed("self");
  const int rank = x.axes.rank() - 2;
  if (rank < 1 || rank > 3) call.refuse(fmt::format("pools {}, which is no image or volume", x.axes.text()));
  const Sizes kernel = by_dimension(call, "kernel_size", rank, {1}), pad = by_dimension(call, "padding", rank, {0});
  const Sizes stride = by_dimension(call, "stride", rank, kernel), dilation = by_dimension(call, "dilation", rank, {1});
  Window w;
  w.rank = rank;
  bool padded = false, beyond = false;  // beyond: the last window, in ceil_mode
  for (std::size_t axis = 0; axis < std::size_t(rank); ++axis) {
    if (dilation[axis] != 1) call.refuse("has a dilation, which pooling does not support");
    if (kernel[axis] < 1 || stride[axis] < 1 || pad[axis] < 0) call.refuse("has a kernel or stride below 1");
    w.kernel[axis] = kernel[axis];
    w.stride[axis] = stride[axis];
    w.pad[axis] = pad[axis];
    padded = padded || pad[axis] > 0;
    beyond = beyond || (x.axes.size(int(axis) + 2) + 2 * pad[axis] - kernel[axis]) % stride[axis] != 0;
  }
  beyond = beyond && call.flag("ceil_mode", false);
  if (beyond && kind != PoolSpec::Kind::max)
    call.refuse("has ceil_mode with a window beyond the image, which is not supported. set ceil_mode=False");
  if (call.has("divisor_override")) call.refuse("has a divisor_override, which is not supported");
  const Value out = pooled(c, call, x, kind, w, beyond);
  const bool counts = kind == PoolSpec::Kind::max || !padded || call.flag("count_include_pad", true);
  return {counts ? out : without_padding(c, call, x.axes, w, out)};
}

Values max_pool(Context& c, const Call& call) { return pool(c, call, PoolSpec::Kind::max); }
Values average_pool(Context& c, const Call& call) { return pool(c, call, PoolSpec::Kind::average); }

Values adaptive_average_pool(Context& c, const Call& call) {
  const Value x = call.computed("self");
  const int rank = x.axes.rank() - 2;
  if (rank < 1 || rank > 3) call.refuse(fmt::format("pools {}, which is no image or volume", x.axes.text()));
  const Sizes out = by_dimension(call, "output_size", rank, {1});
  Window w;
  w.rank = rank;
  bool global = true, same = true, equal = true;
  for (std::size_t axis = 0; axis < std::size_t(rank); ++axis) {
    const std::int64_t in = x.axes.size(int(axis) + 2);
    if (in % rows_symbol == 0) call.refuse(fmt::format("pools {} over the rows", x.axes.text()));
    global = global && out[axis] == 1;
    same = same && out[axis] == in;
    if (out[axis] < 1 || out[axis] % rows_symbol == 0) call.refuse(fmt::format("pools {} to {} values", in, out[axis]));
    equal = equal && in % out[axis] == 0;
    w.kernel[axis] = w.stride[axis] = in / out[axis];
  }
  if (same) return {x};
  if (!equal) {  // their windows overlap
    Value y = x;
    for (int axis = 2; axis < rank + 2; ++axis)
      if (const std::int64_t from = x.axes.size(axis), to = out[std::size_t(axis) - 2]; from != to)
        y = windows_of_axis(c, call, y, axis, adaptive_windows(from, to));
    return {y};
  }
  return {pooled(c, call, x, global ? PoolSpec::Kind::global : PoolSpec::Kind::average, w)};
}

// The atoms of some axes, if they lie side by side in the stored order behind the rows; -1: they do not.
int begin_of_block(const Atoms& atoms, const Atoms& stored) {
  const auto is_own = [&](int atom) { return std::ranges::find(atoms, atom) != atoms.end(); };
  const auto first = std::ranges::find_if(stored, is_own);
  const auto end = std::find_if_not(first, stored.end(), is_own);
  return std::size_t(end - first) == atoms.size() && first != stored.begin() ? int(first - stored.begin()) : -1;
}

}  // namespace

Value mean_over(Context& c, const Call& call, Value x) {
  return mean_over(c, call, x, call.axes("dim", x.axes.rank()), call.flag("keepdim", false));
}

Value mean_over(Context& c, const Call& call, Value x, std::vector<int> axes, bool keep) {
  Atoms reduced;
  for (const int axis : axes) {
    const Atoms& atoms = x.axes.logical[std::size_t(axis)];
    reduced.insert(reduced.end(), atoms.begin(), atoms.end());
  }
  const bool rows =
      std::ranges::any_of(reduced, [&](int atom) { return x.axes.extents[std::size_t(atom)] == rows_symbol; });
  if (axes.empty() || rows) call.refuse(fmt::format("takes the mean of {} over the rows", x.axes.text()));
  if (begin_of_block(reduced, x.axes.stored) < 0)
    x = c.ordered(call, x, concatenated({without(x.axes.stored, reduced), reduced}));
  const Atoms all = x.axes.stored;
  const int begin = begin_of_block(reduced, all);
  if (!reduced.empty()) {
    const auto end = all.begin() + begin + std::ptrdiff_t(reduced.size());
    const std::int64_t before = x.axes.count(Atoms(all.begin() + 1, all.begin() + begin));
    const std::int64_t count = x.axes.count(reduced), after = x.axes.count(Atoms(end, all.end()));
    Window w;
    w.rank = before == 1 ? 1 : 2;
    w.kernel[1] = w.stride[1] = count;
    const Shape shape = before == 1 ? Shape{c.rows, count, after} : Shape{c.rows, before, count, after};
    const auto kind = before == 1 ? PoolSpec::Kind::global : PoolSpec::Kind::average;
    x.graph = c.builder.pool(c.layer_name(call), c.shaped(call, x.graph, shape), kind, w);
    x.memory = -1;
    std::erase_if(x.axes.stored, [&](int atom) { return std::ranges::find(reduced, atom) != reduced.end(); });
  }
  std::ranges::sort(axes, std::greater());
  for (const int axis : axes)
    if (keep)
      x.axes.logical[std::size_t(axis)].clear();
    else
      x.axes.erase_axis(axis);
  return x;
}

namespace {

Values mean(Context& c, const Call& call) { return {mean_over(c, call, call.computed("self"))}; }

Values sum(Context& c, const Call& call) {
  const Value x = call.computed("self");
  std::int64_t count = 1;
  for (const std::int64_t dim : call.integers("dim")) count *= x.axes.size(axis_number(dim, x.axes.rank()));
  return {affine(c, call, mean_over(c, call, x), double(count), 0)};
}

struct Resizing {
  std::int64_t to = 0;
  double scale = 1;  // elements of the source for one of the result
};
std::vector<Resizing> resizings(const Call& call, const Axes& x) {
  const Sizes sizes = call.integers("output_size");
  const auto* factors = call.node().find("scale_factors");
  const auto* list = factors ? std::get_if<std::vector<double>>(factors) : nullptr;
  std::vector<Resizing> out;
  for (int axis = 2; axis < x.rank(); ++axis) {
    const auto dim = std::size_t(axis) - 2;
    const auto in = double(x.size(axis));
    Resizing one;
    if (list && dim < list->size() && (*list)[dim] > 0) {
      const double to = std::floor(in * (*list)[dim]);
      one = {to < 0x1p30 ? std::int64_t(to) : 0, 1 / (*list)[dim]};
    } else if (dim < sizes.size()) {
      one = {sizes[dim], in / double(sizes[dim])};
    }
    if (one.to < 1 || one.to % rows_symbol == 0) call.refuse("resizes to no elements");
    out.push_back(one);
  }
  return out;
}

// The factor of all axes, if it is one whole number; otherwise 0.
std::int64_t whole_factor(const std::vector<Resizing>& all, const Axes& x) {
  std::int64_t factor = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::int64_t in = x.size(int(i) + 2), own = all[i].to % in == 0 ? all[i].to / in : 0;
    if (own == 0 || all[i].scale * double(own) != 1 || (i > 0 && own != factor)) return 0;
    factor = own;
  }
  return factor;
}

Values upsample(Context& c, const Call& call, UpsampleSpec::Kind kind) {
  Value x = call.computed("input");
  if (x.axes.rank() < 3) call.refuse(fmt::format("resizes {}, which is no image or volume", x.axes.text()));
  const bool linear = kind == UpsampleSpec::Kind::linear, align = linear && call.flag("align_corners", false);
  const std::vector<Resizing> all = resizings(call, x.axes);
  const std::int64_t factor = align ? 0 : whole_factor(all, x.axes);
  if (factor == 1) return {x};
  if (factor == 0) {
    for (int axis = 2; axis < x.axes.rank(); ++axis) {
      const auto& [to, scale] = all[std::size_t(axis) - 2];
      const std::int64_t from = x.axes.size(axis);
      if (to == from && (linear || scale == 1)) continue;  // PyTorch copies it, whatever the scale
      x = windows_of_axis(c, call, x, axis,
                          linear ? linear_windows(from, to, scale, align) : nearest_windows(from, to, scale));
    }
    return {x};
  }
  const int out = c.builder.upsample(c.layer_name(call), c.image(call, x), kind, factor);
  const Shape& shape = c.builder.shape(out);
  Sizes spatial;
  for (int axis = 1; axis + 1 < shape.rank; ++axis) spatial.push_back(shape[axis]);
  return {graph_value(out, Axes::image(shape[-1], spatial))};
}

Values nearest(Context& c, const Call& call) { return upsample(c, call, UpsampleSpec::Kind::nearest); }
Values interpolated(Context& c, const Call& call) { return upsample(c, call, UpsampleSpec::Kind::linear); }

}  // namespace

void add_pools(Operations& all) {
  for (const char* rank : {"1d", "2d", "3d"}) {
    all[std::string("max_pool") + rank] = max_pool;
    all[std::string("avg_pool") + rank] = average_pool;
    all[std::string("adaptive_avg_pool") + rank] = adaptive_average_pool;
    all[std::string("upsample_nearest") + rank] = nearest;
  }
  for (const char* name : {"upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"})
    all[name] = interpolated;
  all["mean"] = mean;
  all["sum"] = sum;
}

}  // namespace millrace::pt2
