#include "cpu/onednn/conv_descs.hpp"

namespace millrace::cpu::onednn {

desc channels_last(const Shape& shape, DType dtype) {
  dims d{shape[0], shape[-1]}, strides{shape.row_count(), 1};
  std::int64_t stride = shape.row_count();
  for (int axis = 1; axis < shape.rank - 1; ++axis) {
    stride /= shape[axis];
    d.push_back(shape[axis]);
    strides.push_back(stride);
  }
  return strided(d, dtype, strides);
}

dims weight_dims(const ConvSpec& s) {
  dims d{s.out_channels / s.groups, s.src[-1] / s.groups};
  if (s.groups > 1) d.insert(d.begin(), s.groups);
  d.insert(d.end(), s.window.kernel.begin(), s.window.kernel.begin() + s.window.rank);
  return d;
}

desc canonical_weight(const ConvSpec& s, DType dtype) {
  const std::int64_t filter = s.weight().row_count();
  dims strides{filter, 1};
  if (s.groups > 1) strides.insert(strides.begin(), filter * s.out_channels / s.groups);
  std::int64_t stride = filter;
  for (int axis = 0; axis < s.window.rank; ++axis) strides.push_back(stride /= s.window.kernel[axis]);
  return strided(weight_dims(s), dtype, strides);
}

ConvShape conv_shape(const ConvSpec& s, DType weight_dtype) {
  ConvShape shape;
  shape.src = channels_last(s.src, s.dtype);
  shape.dst = channels_last(s.dst(), s.dtype);
  shape.weight = any(weight_dims(s), weight_dtype);
  if (s.bias) shape.bias = plain({s.out_channels}, DType::f32);
  for (int axis = 0; axis < s.window.rank; ++axis) {
    shape.stride.push_back(s.window.stride[axis]);
    shape.pad.push_back(s.window.pad[axis]);
    shape.dilation.push_back(s.window.dilation[axis] - 1);
  }
  return shape;
}

}  // namespace millrace::cpu::onednn
