// The nodes of graphs with matrix products, computed in double.
#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/base/error.hpp"
#include "millrace/base/rng.hpp"
#include "support/host/composite.hpp"

namespace millrace::test::composite {
namespace {

// Where a value lies that is used at an index of a larger tensor. An axis of fewer entries is shared by neighbours: all
// of them, or, of heads, groups of them.
std::int64_t shared_offset(const View& v, const Numbers& at, const Numbers& dims) {
  std::int64_t sum = 0;
  for (std::size_t a = 0; a < at.size(); ++a) sum += at[a] / (dims[a] / v.dims[a]) * v.strides[a];
  return sum;
}

double pointwise(cudnnPointwiseMode_t mode, double x, double b, double selector) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_IDENTITY:
      return x;
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return selector != 0 ? x : b;
    default:
      fail(Exit::config, "pointwise mode {}", int(mode));
  }
}

void compute_pointwise(cudnnPointwiseMode_t mode, std::int64_t axis, const View& x, const View* b, const View* selector,
                       View& y) {
  each(y.dims, [&](const Numbers& at) {
    const auto used = [&](const View* v) { return v ? v->get(shared_offset(*v, at, y.dims)) : 0; };
    y.set(offset(y, at), mode == CUDNN_POINTWISE_GEN_INDEX ? double(at[std::size_t(axis)])
                                                           : pointwise(mode, used(&x), used(b), used(selector)));
  });
}

void reduce(cudnnReduceTensorOp_t how, const View& x, View& y) {
  const bool largest = how == CUDNN_REDUCE_TENSOR_MAX;
  MR_CHECK(largest || how == CUDNN_REDUCE_TENSOR_ADD);
  const Numbers& dims = x.dims;
  std::map<std::int64_t, double> results;
  each(dims, [&](const Numbers& at) {
    const double value = x.get(offset(x, at));
    const auto [known, is_new] = results.emplace(shared_offset(y, at, dims), value);
    if (!is_new) known->second = largest ? std::max(known->second, value) : known->second + value;
  });
  for (const auto& [place, value] : results) y.set(place, value);
}

// The values of one matrix of a tensor, row after row.
std::vector<double> matrix(const View& v, const Numbers& batch, const Numbers& batches) {
  std::vector<double> out;
  Numbers at = batch;
  for (at[2] = 0; at[2] < v.dims[2]; ++at[2])
    for (at[3] = 0; at[3] < v.dims[3]; ++at[3]) {
      Numbers dims = batches;
      dims[2] = v.dims[2];
      dims[3] = v.dims[3];
      out.push_back(v.get(shared_offset(v, at, dims)));
    }
  return out;
}

void multiply(const View& a, const View& b, View& c) {
  MR_CHECK(a.dims[2] == c.dims[2] && b.dims[3] == c.dims[3] && a.dims[3] == b.dims[2]);
  const auto rows = std::size_t(c.dims[2]), columns = std::size_t(c.dims[3]), depth = std::size_t(a.dims[3]);
  each({c.dims[0], c.dims[1], 1, 1}, [&](const Numbers& batch) {
    const std::vector<double> left = matrix(a, batch, c.dims), right = matrix(b, batch, c.dims);
    std::vector<double> sums(columns);
    Numbers at = batch;
    for (std::size_t i = 0; i < rows; ++i) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (std::size_t k = 0; k < depth; ++k)
        for (std::size_t j = 0; j < columns; ++j) sums[j] += left[i * depth + k] * right[k * columns + j];
      at[2] = std::int64_t(i);
      for (std::size_t j = 0; j < columns; ++j) {
        at[3] = std::int64_t(j);
        c.set(offset(c, at), sums[j]);
      }
    }
  });
}

// Other numbers than cuDNN's, but also a function of seed, offset and place.
void draw(double probability, const View& seed, const View& offset_of_numbers, View& y) {
  const auto number = [](const View& v) { return std::uint64_t(*static_cast<const std::int64_t*>(v.data)); };
  const std::uint64_t key = number(seed), begin = number(offset_of_numbers);
  each(y.dims, [&](const Numbers& at) {
    const std::int64_t place = offset(y, at);
    y.set(place, uniform01(philox(key, begin, std::uint64_t(place)).v[0]) < probability);
  });
}

}  // namespace

void compute(const nlohmann::json& node, std::map<std::string, View>& views) {
  const auto of = [&](const char* name) { return node.contains(name) ? &views.at(node.at(name)) : nullptr; };
  switch (cudnnBackendDescriptorType_t(node.at("composite").get<int>())) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return multiply(*of("A"), *of("B"), *of("C"));
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return compute_pointwise(cudnnPointwiseMode_t(node.at("mode").get<int>()), node.at("axis"), *of("X"), of("B"),
                               of("T"), *of("Y"));
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return reduce(cudnnReduceTensorOp_t(node.at("mode").get<int>()), *of("X"), *of("Y"));
    case CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR:
      return draw(node.at("probability"), *of("seed"), *of("offset"), *of("Y"));
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: {
      View &x = *of("X"), &y = *of("Y");  // the same memory with other axes
      each(x.dims, [&](const Numbers& at) { y.set(offset(x, at), x.get(offset(x, at))); });
      return;
    }
    default:
      fail(Exit::config, "a node of kind {}", node.at("composite").dump());
  }
}

}  // namespace millrace::test::composite
