// The tensors and operations of the graphs of attention.
#include <utility>

#include "cuda/dnn/attention_graph.hpp"

namespace millrace::cuda::cudnn {

AttentionGraph::View AttentionGraph::tensor(View v, bool by_value) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, v.type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::vector<std::int64_t>(v.dims, v.dims + 4));
  d.set(CUDNN_ATTR_TENSOR_STRIDES, std::vector<std::int64_t>(v.strides, v.strides + 4));
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, v.role == virtual_role ? next_role_++ : v.role);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t(16));
  const bool yes = true;
  if (v.role == virtual_role) d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
  if (by_value) d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
  d.finalize();
  v.descriptor = &keep(std::move(d));
  return v;
}

AttentionGraph::View AttentionGraph::scalar(std::int64_t role) {
  return tensor({{1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, role}, true);
}

AttentionGraph::View AttentionGraph::of_src(std::int64_t role, std::int64_t heads) {
  const AttentionSpec& s = problem_.spec;
  const std::int64_t width = s.src[-1], size = s.head_size();
  return tensor({{s.src[0], heads, s.positions(), size}, {s.positions() * width, size, width, 1}, type_, role});
}

AttentionGraph::View AttentionGraph::transposed_src(std::int64_t role) {
  const AttentionSpec& s = problem_.spec;
  const std::int64_t width = s.src[-1], size = s.head_size();
  return tensor({{s.src[0], s.key_heads, size, s.positions()}, {s.positions() * width, size, 1, width}, type_, role});
}

AttentionGraph::View AttentionGraph::of_dst(std::int64_t role, bool in_float) {
  const AttentionSpec& s = problem_.spec;
  const std::int64_t width = s.heads * s.head_size();
  return tensor({{s.src[0], s.heads, s.positions(), s.head_size()},
                 {s.positions() * width, s.head_size(), width, 1},
                 in_float ? CUDNN_DATA_FLOAT : type_,
                 role});
}

AttentionGraph::View AttentionGraph::scores(cudnnDataType_t type, bool transposed) {
  const AttentionSpec& s = problem_.spec;
  const std::int64_t n = s.positions();
  View v{{s.src[0], s.heads, n, n}, {s.heads * n * n, n * n, n, 1}, type};
  if (transposed) std::swap(v.strides[2], v.strides[3]);
  return tensor(v);
}

AttentionGraph::View AttentionGraph::of_queries(std::int64_t role) {
  const AttentionSpec& s = problem_.spec;
  return tensor(
      {{s.src[0], s.heads, s.positions(), 1}, {s.heads * s.positions(), s.positions(), 1, 1}, CUDNN_DATA_FLOAT, role});
}

AttentionGraph::View AttentionGraph::of_heads(std::int64_t role, cudnnDataType_t type) {
  const AttentionSpec& s = problem_.spec;
  const std::int64_t n = s.positions(), size = s.head_size();
  return tensor({{s.src[0], s.heads, n, size}, {s.heads * n * size, n * size, size, 1}, type, role});
}

AttentionGraph::View AttentionGraph::matmul(const View& a, const View& b, const View& result) {
  Descriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize();
  Descriptor d(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a.descriptor);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b.descriptor);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *result.descriptor);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(std::move(kind)));
  operation(std::move(d));
  return result;
}

// With a selector: x where it is true, otherwise b.
AttentionGraph::View AttentionGraph::pointwise(cudnnPointwiseMode_t mode, const View& x, const View* b,
                                               const View& result, const View* selector) {
  Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
  kind.finalize();
  Descriptor d(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(kind)));
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x.descriptor);
  if (b) d.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b->descriptor);
  if (selector) d.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *selector->descriptor);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *result.descriptor);
  operation(std::move(d));
  return result;
}

// The index of each score along an axis.
AttentionGraph::View AttentionGraph::index(const View& of, std::int64_t axis) {
  const View result = scores(CUDNN_DATA_INT32);
  const auto mode = CUDNN_POINTWISE_GEN_INDEX;
  Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  kind.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  kind.finalize();
  Descriptor d(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(kind)));
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *of.descriptor);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *result.descriptor);
  operation(std::move(d));
  return result;
}

AttentionGraph::View AttentionGraph::reduce(cudnnReduceTensorOp_t how, const View& x, const View& result) {
  Descriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
  kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize();
  Descriptor d(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x.descriptor);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *result.descriptor);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(std::move(kind)));
  operation(std::move(d));
  return result;
}

AttentionGraph::View AttentionGraph::reshape(const View& x, const View& result) {
  Descriptor d(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x.descriptor);
  d.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *result.descriptor);
  operation(std::move(d));
  return result;
}

// 1 with a probability, otherwise 0, for each score. cuDNN draws the same for equal seeds and offsets.
AttentionGraph::View AttentionGraph::draw(double probability, const View& seed, const View& offset) {
  const View result = scores(CUDNN_DATA_FLOAT);
  const auto distribution = CUDNN_RNG_DISTRIBUTION_BERNOULLI;
  Descriptor kind(CUDNN_BACKEND_RNG_DESCRIPTOR);
  kind.set(CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_TYPE_RNG_DISTRIBUTION, 1, &distribution);
  kind.set(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, CUDNN_TYPE_DOUBLE, 1, &probability);
  kind.finalize();
  Descriptor d(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_RNG_YDESC, *result.descriptor);
  d.set(CUDNN_ATTR_OPERATION_RNG_SEED, *seed.descriptor);
  d.set(CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, *offset.descriptor);
  d.set(CUDNN_ATTR_OPERATION_RNG_DESC, keep(std::move(kind)));
  operation(std::move(d));
  return result;
}

}  // namespace millrace::cuda::cudnn
