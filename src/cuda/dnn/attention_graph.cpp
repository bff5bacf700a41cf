// The patterns are those that cuDNN's engines support.
#include "cuda/dnn/attention_graph.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::cuda::cudnn {
namespace {

enum AttentionRole : std::int64_t {
  query_role = 1,
  key_role,
  value_role,
  attended_role,
  log_sum_role,
  diff_dst_role,
  diff_query_role,
  diff_key_role,
  diff_value_role,
  delta_role,
  query_sum_role,
  scale_role,
  minus_infinity_role,
  one_role,
  starts_role,
  draw_seed_role,
  draw_offset_role,
  kept_factor_role
};

// The arguments of backward that forward does not have. keys, values: where they begin in src.
void add_gradients(std::vector<Argument>& all, const AttentionProblem& problem, std::size_t keys, std::size_t values) {
  const AttentionSpec& s = problem.spec;
  const Shape of_queries{s.src[0], s.heads, s.positions()};
  for (const Argument& gradient : {Argument{diff_dst_role, s.dst(), s.dtype},
                                   {diff_query_role, s.src, s.dtype},
                                   {diff_key_role, s.src, s.dtype, diff_query_role, keys},
                                   {diff_value_role, s.src, s.dtype, diff_query_role, values},
                                   {delta_role, of_queries, DType::f32}})
    all.push_back(gradient);
  if (problem.accumulate) all.push_back({query_sum_role, s.dst(), DType::f32});
}

}  // namespace

std::string AttentionProblem::key() const {
  return fmt::format("attention {} {} {} heads {} key heads {}{}{}{}{}", backward ? "backward" : "forward",
                     name_of(spec.dtype), spec.src.str(), spec.heads, spec.key_heads, spec.causal ? " causal" : "",
                     accumulate ? " accumulate" : "", spec.documents ? " documents" : "",
                     spec.drops() ? fmt::format(" dropout {}", spec.dropout) : "");
}

std::vector<Argument> AttentionProblem::arguments() const {
  const AttentionSpec& s = spec;
  const Shape of_queries{s.src[0], s.heads, s.positions()};
  const std::size_t keys = std::size_t(s.heads * s.head_size()) * size_of(s.dtype),
                    values = keys + std::size_t(s.key_heads * s.head_size()) * size_of(s.dtype);
  std::vector<Argument> all{{query_role, s.src, s.dtype},
                            {key_role, s.src, s.dtype, query_role, keys},
                            {value_role, s.src, s.dtype, query_role, values},
                            {attended_role, s.dst(), s.dtype},
                            {log_sum_role, of_queries, DType::f32}};
  if (backward) add_gradients(all, *this, keys, values);
  if (s.documents) all.push_back({starts_role, {s.src[0], s.positions()}, DType::i32});
  if (s.drops()) {
    all.push_back({draw_seed_role, {1}, DType::i64});
    all.push_back({draw_offset_role, {1}, DType::i64});
  }
  return all;
}

std::vector<Constant> AttentionProblem::constants() const {
  std::vector<Constant> all{{scale_role, float(1 / std::sqrt(double(spec.head_size())))}};
  // Documents: the first scores of a query may all be hidden, and a maximum of -infinity would lead to NaNs.
  constexpr float finite = -1024.0f * 1024 * 1024;
  if (spec.causal)
    all.push_back({minus_infinity_role, spec.documents ? finite : -std::numeric_limits<float>::infinity()});
  if (backward) all.push_back({one_role, spec.drops() ? 1 - spec.dropout : 1.0f});
  if (spec.drops()) all.push_back({kept_factor_role, 1 / (1 - spec.dropout)});
  return all;
}

AttentionProblem::operator Problem() const {
  Problem problem;
  problem.key = key();
  problem.dtype = spec.dtype;
  problem.arguments = arguments();
  problem.constants = constants();
  problem.make_graph = [p = *this](const DeviceTarget& target) { return std::make_unique<AttentionGraph>(target, p); };
  return problem;
}

AttentionGraph::AttentionGraph(const DeviceTarget& target, const AttentionProblem& problem)
    : Graph(target, problem.spec.dtype), problem_(problem), type_(type_of(problem.spec.dtype)) {
  problem.backward ? backward() : forward();
  finish();
}

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

AttentionGraph::View AttentionGraph::scaled_scores(const View& queries, const View& keys, const View& scale) {
  const View products = matmul(queries, keys, scores(CUDNN_DATA_FLOAT));
  return pointwise(CUDNN_POINTWISE_MUL, products, &scale, scores(CUDNN_DATA_FLOAT));
}

AttentionGraph::View AttentionGraph::masked(const View& of) {
  if (!problem_.spec.causal) return of;
  const View query = index(of, 2), key = index(of, 3);
  const View visible = pointwise(CUDNN_POINTWISE_CMP_GE, query, &key, scores(CUDNN_DATA_BOOLEAN));
  const View minus_infinity = scalar(minus_infinity_role);
  const View causal = pointwise(CUDNN_POINTWISE_BINARY_SELECT, of, &minus_infinity, scores(CUDNN_DATA_FLOAT), &visible);
  if (!problem_.spec.documents) return causal;
  const std::int64_t n = problem_.spec.positions();
  const View starts = tensor({{problem_.spec.src[0], 1, n, 1}, {n, n, 1, 1}, CUDNN_DATA_INT32, starts_role});
  const View same = pointwise(CUDNN_POINTWISE_CMP_GE, key, &starts, scores(CUDNN_DATA_BOOLEAN));
  return pointwise(CUDNN_POINTWISE_BINARY_SELECT, causal, &minus_infinity, scores(CUDNN_DATA_FLOAT), &same);
}

AttentionGraph::View AttentionGraph::dropout_mask() {
  const auto number = [&](std::int64_t role) { return tensor({{1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_INT64, role}); };
  const View seed = number(draw_seed_role), offset = number(draw_offset_role);
  return draw(1 - double(problem_.spec.dropout), seed, offset);
}

// a * b, added up over the heads that share a key head.
void AttentionGraph::to_key_heads(const View& a, const View& b, std::int64_t role) {
  const View result = of_src(role, problem_.spec.key_heads);
  if (problem_.spec.heads == problem_.spec.key_heads)
    matmul(a, b, result);
  else
    reduce(CUDNN_REDUCE_TENSOR_ADD, matmul(a, b, of_heads(virtual_role, type_)), result);
}

void AttentionGraph::forward() {
  const AttentionSpec& s = problem_.spec;
  const View queries = of_src(query_role, s.heads), keys = transposed_src(key_role),
             values = of_src(value_role, s.key_heads);
  const View of_scores = masked(scaled_scores(queries, keys, scalar(scale_role)));
  const View most = reduce(CUDNN_REDUCE_TENSOR_MAX, of_scores, of_queries(virtual_role));
  const View differences = pointwise(CUDNN_POINTWISE_SUB, of_scores, &most, scores(CUDNN_DATA_FLOAT));
  const View exponentials = pointwise(CUDNN_POINTWISE_EXP, differences, nullptr, scores(CUDNN_DATA_FLOAT));
  const View sums = reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials, of_queries(virtual_role));
  const View logarithms = pointwise(CUDNN_POINTWISE_LOG, sums, nullptr, of_queries(virtual_role));
  pointwise(CUDNN_POINTWISE_ADD, most, &logarithms, of_queries(log_sum_role));
  View probabilities =
      pointwise(CUDNN_POINTWISE_DIV, exponentials, &sums, scores(s.drops() ? CUDNN_DATA_FLOAT : type_));
  if (s.drops()) {
    const View mask = dropout_mask(), factor = scalar(kept_factor_role);
    probabilities = pointwise(CUDNN_POINTWISE_MUL, probabilities, &mask, scores(CUDNN_DATA_FLOAT));
    probabilities = pointwise(CUDNN_POINTWISE_MUL, probabilities, &factor, scores(type_));
  }
  matmul(probabilities, values, of_dst(attended_role));
}

void AttentionGraph::backward() {
  const AttentionSpec& s = problem_.spec;
  const View queries = of_src(query_role, s.heads), keys = transposed_src(key_role),
             values = transposed_src(value_role);
  const View diff_dst = of_dst(diff_dst_role), scale = scalar(scale_role), one = scalar(one_role);
  const View dst = of_dst(attended_role), log_sums = of_queries(log_sum_role);
  const View products = pointwise(CUDNN_POINTWISE_MUL, diff_dst, &dst, of_dst(virtual_role, true));
  const View delta = pointwise(CUDNN_POINTWISE_MUL, reduce(CUDNN_REDUCE_TENSOR_ADD, products, of_queries(virtual_role)),
                               &one, of_queries(delta_role));
  const View logarithms =
      pointwise(CUDNN_POINTWISE_SUB, scaled_scores(queries, keys, scale), &log_sums, scores(CUDNN_DATA_FLOAT));
  const View probabilities = pointwise(CUDNN_POINTWISE_EXP, masked(logarithms), nullptr, scores(CUDNN_DATA_FLOAT));
  View weights = probabilities, mask, factor;
  if (s.drops()) {
    mask = dropout_mask();
    factor = scalar(kept_factor_role);
    weights = pointwise(CUDNN_POINTWISE_MUL, weights, &mask, scores(CUDNN_DATA_FLOAT));
    weights = pointwise(CUDNN_POINTWISE_MUL, weights, &factor, scores(CUDNN_DATA_FLOAT));
  }
  to_key_heads(reshape(weights, scores(type_, true)), diff_dst, diff_value_role);
  View diff = matmul(diff_dst, values, scores(CUDNN_DATA_FLOAT));
  if (s.drops()) diff = pointwise(CUDNN_POINTWISE_MUL, diff, &mask, scores(CUDNN_DATA_FLOAT));
  diff = pointwise(CUDNN_POINTWISE_SUB, diff, &delta, scores(CUDNN_DATA_FLOAT));
  diff = pointwise(CUDNN_POINTWISE_MUL, diff, &probabilities, scores(CUDNN_DATA_FLOAT));
  // `delta` was multiplied by 1 - dropout, because the factor comes behind it.
  if (s.drops()) diff = pointwise(CUDNN_POINTWISE_MUL, diff, &factor, scores(CUDNN_DATA_FLOAT));
  diff = pointwise(CUDNN_POINTWISE_MUL, diff, &scale, scores(type_));
  to_key_heads(reshape(diff, scores(type_, true)), queries, diff_key_role);
  const View result = of_src(diff_query_role, s.heads), keys_again = reshape(keys, of_src(virtual_role, s.key_heads));
  if (!problem_.accumulate) {
    matmul(diff, keys_again, result);
    return;
  }
  const View sums = of_heads(query_sum_role, CUDNN_DATA_FLOAT);
  pointwise(CUDNN_POINTWISE_IDENTITY, matmul(diff, keys_again, sums), nullptr, result);
}

}  // namespace millrace::cuda::cudnn
