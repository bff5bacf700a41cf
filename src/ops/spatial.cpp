#include "millrace/base/error.hpp"
#include "millrace/ops/conv.hpp"
#include "millrace/ops/pool.hpp"

namespace millrace {
namespace {

// The shape (N, spatial'..., channels) of the result. Throws Error(config) if the window does not fit.
Shape slide(const char* op, const Shape& src, const Window& window, std::int64_t channels) {
  if (window.rank < 1 || window.rank > 3 || src.spatial_rank() != window.rank)
    fail(Exit::config,
         "{}: input {} has {} spatial dimensions, but the window has {}. both must have the same number, from 1 to 3",
         op, src.str(), src.spatial_rank(), window.rank);
  Shape dst = src;
  dst[-1] = channels;
  for (int axis = 0; axis < window.rank; ++axis) {
    if (window.kernel[axis] < 1 || window.stride[axis] < 1 || window.dilation[axis] < 1 || window.pad[axis] < 0)
      fail(Exit::config, "{}: kernel, stride and dilation must be at least 1, and padding at least 0", op);
    const std::int64_t reach = src[1 + axis] + 2 * window.pad[axis] - window.dilation[axis] * (window.kernel[axis] - 1);
    if (reach < 1)
      fail(Exit::config,
           "{}: a window of {} does not fit into input {} along spatial axis {}. use a smaller window or more padding",
           op, window.kernel[axis], src.str(), axis);
    dst[1 + axis] = window.out(axis, src[1 + axis]);
  }
  return dst;
}

}  // namespace

Shape ConvSpec::dst() const {
  if (groups < 1 || out_channels < 1 || src[-1] % groups || out_channels % groups)
    fail(Exit::config, "conv: {} groups do not divide both {} input channels and {} output channels", groups, src[-1],
         out_channels);
  if (padded_channels < 0 || (padded_channels > 0 && (padded_channels >= src[-1] || groups > 1 || need_diff_src)))
    fail(Exit::config,
         "conv: {} of {} channels cannot be padding (there must be other channels, one group and no diff_src)",
         padded_channels, src[-1]);
  return slide("conv", src, window, out_channels);
}

Shape ConvSpec::weight() const {
  Shape shape{out_channels};
  for (int axis = 0; axis < window.rank; ++axis) shape.dims[shape.rank++] = window.kernel[axis];
  shape.dims[shape.rank++] = (src[-1] - padded_channels) / groups;
  return shape;
}

double ConvSpec::flops() const { return 2.0 * double(dst().count()) * double(weight().row_count()); }

Shape PoolSpec::dst() const {
  if (kind == Kind::global) return {src[0], src[-1]};
  Shape out = slide("pool", src, window, src[-1]);
  if (!ceil_mode) return out;
  if (kind != Kind::max) fail(Exit::config, "pool: ceil_mode is supported for max pooling only");
  for (int axis = 0; axis < window.rank; ++axis) {
    const std::int64_t stride = window.stride[axis], padded = src[1 + axis] + window.pad[axis];
    const std::int64_t left = padded + window.pad[axis] - window.dilation[axis] * (window.kernel[axis] - 1) - 1;
    out[1 + axis] = (left + stride - 1) / stride + 1;
    if ((out[1 + axis] - 1) * stride >= padded) --out[1 + axis];  // each window begins in the image or before it
  }
  return out;
}

}  // namespace millrace
