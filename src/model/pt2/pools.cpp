// Pooling, means and upsampling: operations on the extents of an image or a volume.
#include <fmt/core.h>

#include <algorithm>

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
  if (kind == PoolSpec::Kind::average && padded && !call.flag("count_include_pad", true))
    call.refuse("has count_include_pad=False, which is not supported. set it to True");
  if (call.has("divisor_override")) call.refuse("has a divisor_override, which is not supported");
  return {pooled(c, call, x, kind, w, beyond)};
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
  bool global = true, same = true;
  for (std::size_t axis = 0; axis < std::size_t(rank); ++axis) {
    const std::int64_t in = x.axes.size(int(axis) + 2);
    global = global && out[axis] == 1;
    same = same && out[axis] == in;
    if (out[axis] < 1 || in % out[axis] != 0)
      call.refuse(fmt::format("pools {} to {} values, whose windows overlap. that is not supported", in, out[axis]));
    w.kernel[axis] = w.stride[axis] = in / out[axis];
  }
  if (same) return {x};
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
  const bool keep = call.flag("keepdim", false);
  Atoms reduced;
  std::vector<int> axes = call.axes("dim", x.axes.rank());
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

std::int64_t factor_of(const Call& call, const Axes& x) {
  const int rank = x.rank() - 2;
  const Sizes sizes = call.integers("output_size");
  const auto* factors = call.node().find("scale_factors");
  const auto* list = factors ? std::get_if<std::vector<double>>(factors) : nullptr;
  double factor = 0;
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t in = x.size(axis + 2);
    const double one = std::size_t(axis) < sizes.size()           ? double(sizes[std::size_t(axis)]) / double(in)
                       : list && std::size_t(axis) < list->size() ? (*list)[std::size_t(axis)]
                                                                  : 0;
    if (one < 1 || one != double(std::int64_t(one)) || (axis > 0 && one != factor))
      call.refuse("resizes by a factor that is not whole, or that differs by axis. that is not supported");
    factor = one;
  }
  return std::int64_t(factor);
}

Values upsample(Context& c, const Call& call, UpsampleSpec::Kind kind) {
  const Value x = call.computed("input");
  if (x.axes.rank() < 3) call.refuse(fmt::format("resizes {}, which is no image or volume", x.axes.text()));
  if (call.flag("align_corners", false)) call.refuse("has align_corners=True, which is not supported. set it to False");
  const int src = c.image(call, x);
  const std::int64_t factor = factor_of(call, x.axes);
  if (factor == 1) return {x};
  const int out = c.builder.upsample(c.layer_name(call), src, kind, factor);
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
