// The cuDNN graph of a convolution and the operations that are fused with it.
#include "cuda/dnn/conv_graph.hpp"

#include <fmt/core.h>

#include "millrace/base/types.hpp"

namespace millrace::cuda::cudnn {
namespace {

using Numbers = std::vector<std::int64_t>;

// Memory holds (N, spatial..., C); cuDNN counts dimensions as (N, C, spatial...). A tensor with one spatial dimension
// gets a height of 1, because cuDNN needs two.
Descriptor tensor(Shape shape, DType dtype, Role role) {
  if (shape.rank == 3) shape = {shape[0], 1, shape[1], shape[2]};
  Numbers dims{shape[0], shape[-1]}, strides{shape.row_count(), 1};
  std::int64_t stride = shape.row_count();
  for (int axis = 1; axis < shape.rank - 1; ++axis) {
    stride /= shape[axis];
    dims.push_back(shape[axis]);
    strides.push_back(stride);
  }
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(dtype));
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
  d.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, std::int64_t(role));
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t(16));
  if (role >= virtual_roles) {
    const bool is_virtual = true;
    d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  }
  d.finalize();
  return d;
}

Descriptor convolution(const Window& w) {
  Numbers pad, stride, dilation;
  if (w.rank == 1) {
    pad = {0};
    stride = {1};
    dilation = {1};
  }
  for (std::size_t axis = 0; axis < std::size_t(w.rank); ++axis) {
    pad.push_back(w.pad[axis]);
    stride.push_back(w.stride[axis]);
    dilation.push_back(w.dilation[axis]);
  }
  const auto mode = CUDNN_CROSS_CORRELATION;
  Descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  d.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t(pad.size()));
  d.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pad);
  d.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, pad);
  d.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation);
  d.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride);
  d.finalize();
  return d;
}

// The attributes of the three convolution operations, which differ in their names only.
struct ConvNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t conv, src, weight, dst, alpha, beta;
};

ConvNames names_of(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case Direction::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
}

Shape per_channel(Shape shape) {
  for (int axis = 0; axis < shape.rank - 1; ++axis) shape[axis] = 1;
  return shape;
}

}  // namespace

std::string ConvProblem::key() const {
  static const char* const names[] = {"forward", "backward_data", "backward_weights"};
  std::string text =
      fmt::format("{} {} {} * {} -> {}", names[int(direction)], name_of(dtype), src.str(), weight.str(), dst.str());
  for (const auto& [name, extents] :
       {std::pair("stride", window.stride), std::pair("pad", window.pad), std::pair("dilation", window.dilation)}) {
    text += fmt::format(" {}", name);
    for (std::size_t axis = 0; axis < std::size_t(window.rank); ++axis)
      text += fmt::format("{}{}", axis ? "x" : " ", extents[axis]);
  }
  return text + (bias ? " bias" : "") + (add ? " add" : "") + (sums ? " sums" : "") + (norm ? " norm" : "") +
         (normalise ? " normalise" : "");
}

std::vector<Argument> ConvProblem::arguments() const {
  std::vector<Argument> all{{src_role, src, dtype}, {weight_role, weight, dtype}, {dst_role, dst, dtype}};
  if (bias) all.push_back({bias_role, per_channel(dst), dtype});
  if (sums)
    for (const Role role : {sum_role, square_role}) all.push_back({role, per_channel(dst), DType::f32});
  if (normalise)
    for (const Role role : {src_scale_role, src_bias_role}) all.push_back({role, per_channel(src), dtype});
  if (norm) {
    all.push_back({norm_src_role, src, dtype});
    for (int role = mean_role; role <= offset_role; ++role) all.push_back({Role(role), per_channel(src), DType::f32});
  }
  return all;
}

ConvProblem::operator Problem() const {
  Problem problem;
  problem.key = key();
  problem.dtype = dtype;
  problem.arguments = arguments();
  problem.make_graph = [p = *this](const DeviceTarget& target) { return std::make_unique<ConvGraph>(target, p); };
  if (src[-1] < 8) problem.candidates = 32;  // the fast engines are far down in cuDNN's list
  return problem;
}

ConvGraph::ConvGraph(const DeviceTarget& target, const ConvProblem& p) : Graph(target, p.dtype) {
  const Descriptor& src = keep(tensor(p.src, p.dtype, src_role));
  const Descriptor& weight = keep(tensor(p.weight, p.dtype, weight_role));
  const Descriptor& dst = keep(tensor(p.dst, p.dtype, dst_role));
  const Descriptor& from = p.norm ? intermediate(p.src, conv_role) : p.normalise ? normalised(p, src) : src;
  const Descriptor& to = p.bias ? intermediate(p.dst, conv_role) : dst;
  const ConvNames names = names_of(p.direction);
  Descriptor conv(names.type);
  conv.set(names.conv, keep(convolution(p.window)));
  conv.set(names.src, from);
  conv.set(names.weight, weight);
  conv.set(names.dst, to);
  conv.set(names.alpha, 1.0f);
  conv.set(names.beta, p.add ? 1.0f : 0.0f);
  operation(std::move(conv));
  if (p.bias) pointwise(CUDNN_POINTWISE_ADD, to, &keep(tensor(per_channel(p.dst), p.dtype, bias_role)), dst);
  if (p.sums) sums(p, dst);
  if (p.norm) norm(p, from, src);
  finish();
}

const Descriptor& ConvGraph::intermediate(const Shape& shape, Role role) {
  return keep(tensor(shape, DType::f32, role));
}
// The pattern that cuDNN's engines support. The convolution pads what comes out of it. The last tensor has the type of
// src, as the tensor that a norm would have stored; engines for Blackwell require that.
const Descriptor& ConvGraph::normalised(const ConvProblem& p, const Descriptor& src) {
  const auto value = [&](Role role) { return &keep(tensor(per_channel(p.src), p.dtype, role)); };
  const Descriptor &scaled = intermediate(p.src, src_scaled_role), &shifted = intermediate(p.src, src_shifted_role);
  const Descriptor& result = keep(tensor(p.src, p.dtype, src_normalised_role));
  pointwise(CUDNN_POINTWISE_MUL, src, value(src_scale_role), scaled);
  pointwise(CUDNN_POINTWISE_ADD, scaled, value(src_bias_role), shifted);
  pointwise(CUDNN_POINTWISE_RELU_FWD, shifted, nullptr, result);
  return result;
}
// result = x + b, x - b, x * b or, without b, relu(x). With CUDNN_POINTWISE_RELU_BWD: the gradient b where x > 0,
// otherwise 0.
void ConvGraph::pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b,
                          const Descriptor& result) {
  Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  kind.finalize();
  const bool backward = mode == CUDNN_POINTWISE_RELU_BWD;
  Descriptor d(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(kind)));
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b) d.set(backward ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC : CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  d.set(backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result);
  operation(std::move(d));
}

void ConvGraph::sums(const ConvProblem& p, const Descriptor& dst) {
  const auto mode = CUDNN_GENSTATS_SUM_SQSUM;
  const Shape shape = per_channel(p.dst);
  Descriptor d(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
  d.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, dst);
  d.set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, keep(tensor(shape, DType::f32, sum_role)));
  d.set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, keep(tensor(shape, DType::f32, square_role)));
  operation(std::move(d));
}

// The pattern that cuDNN's engines support. It computes the norm again to find where the ReLU was active, and all
// outputs must be present.
void ConvGraph::norm(const ConvProblem& p, const Descriptor& diff, const Descriptor& passed) {
  const auto value = [&](Role role) -> const Descriptor& { return keep(tensor(per_channel(p.src), DType::f32, role)); };
  const Descriptor &mean = value(mean_role), &inverse = value(inverse_role), &gamma = value(gamma_role);
  const Descriptor& x = keep(tensor(p.src, p.dtype, norm_src_role));
  const Descriptor &centered = intermediate(p.src, centered_role), &scaled = intermediate(p.src, scaled_role);
  const Descriptor &weighted = intermediate(p.src, weighted_role), &normed = intermediate(p.src, normed_role);
  pointwise(CUDNN_POINTWISE_SUB, x, &mean, centered);
  pointwise(CUDNN_POINTWISE_MUL, centered, &inverse, scaled);
  pointwise(CUDNN_POINTWISE_MUL, scaled, &gamma, weighted);
  pointwise(CUDNN_POINTWISE_ADD, weighted, &value(beta_role), normed);
  pointwise(CUDNN_POINTWISE_RELU_BWD, normed, &diff, passed);
  Descriptor d(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, x);
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, passed);
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, mean);
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, inverse);
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, gamma);
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, value(diff_gamma_role));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, value(diff_beta_role));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, value(factor_role));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, value(slope_role));
  d.set(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, value(offset_role));
  operation(std::move(d));
}

}  // namespace millrace::cuda::cudnn
