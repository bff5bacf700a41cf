// The cuDNN graph of attention: matrix products with the softmax between them, which cuDNN compiles to fused kernels.
#pragma once
#include <utility>

#include "cuda/dnn/cudnn_graph.hpp"
#include "millrace/ops/attention.hpp"

namespace millrace::cuda::cudnn {

// Attention in one direction. All tensors are views of those of AttentionSpec, with the axes (rows, heads, positions,
// columns) of cuDNN; the views of src begin at the queries, the keys and the values. Both types of 16 bits.
struct AttentionProblem {
  AttentionSpec spec;
  bool backward = false;
  // backward: blocks add the gradient of the queries up in float32 memory, in any order. False: a product computes it,
  // with the same result in every run, from scores that some engines store.
  bool accumulate = false;

  std::string key() const;
  // Forward: queries, keys, values, dst, log_sums. Backward: the same, diff_dst, the three gradients, one float for
  // each query and, with accumulate, the sums of dQ. At the end of both, with documents: their starts; with dropout: an
  // int64 seed and an int64 offset.
  std::vector<Argument> arguments() const;
  std::vector<Constant> constants() const;
  operator Problem() const;
};

class AttentionGraph : public Graph {
 public:
  AttentionGraph(const DeviceTarget&, const AttentionProblem&);

 private:
  static constexpr std::int64_t virtual_role = 0, first_virtual_role = 100;
  // A tensor with four axes; role 0: virtual.
  struct View {
    std::int64_t dims[4], strides[4];
    cudnnDataType_t type;
    std::int64_t role = 0;
    const Descriptor* descriptor = nullptr;
  };
  View tensor(View, bool by_value = false);
  View scalar(std::int64_t role) { return tensor({{1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, role}, true); }
  // Of src, and of its gradient.
  View of_src(std::int64_t role, std::int64_t heads) {
    const AttentionSpec& s = problem_.spec;
    const std::int64_t width = s.src[-1], size = s.head_size();
    return tensor({{s.src[0], heads, s.positions(), size}, {s.positions() * width, size, width, 1}, type_, role});
  }
  // Keys or values.
  View transposed_src(std::int64_t role) {
    const AttentionSpec& s = problem_.spec;
    const std::int64_t width = s.src[-1], size = s.head_size();
    return tensor({{s.src[0], s.key_heads, size, s.positions()}, {s.positions() * width, size, 1, width}, type_, role});
  }
  // Of dst, and of its gradient. in_float: virtual.
  View of_dst(std::int64_t role, bool in_float = false) {
    const AttentionSpec& s = problem_.spec;
    const std::int64_t width = s.heads * s.head_size();
    return tensor({{s.src[0], s.heads, s.positions(), s.head_size()},
                   {s.positions() * width, s.head_size(), width, 1},
                   in_float ? CUDNN_DATA_FLOAT : type_,
                   role});
  }
  View scores(cudnnDataType_t type, bool transposed = false) {
    const AttentionSpec& s = problem_.spec;
    const std::int64_t n = s.positions();
    View v{{s.src[0], s.heads, n, n}, {s.heads * n * n, n * n, n, 1}, type};
    if (transposed) std::swap(v.strides[2], v.strides[3]);
    return tensor(v);
  }
  // One float for each query.
  View of_queries(std::int64_t role) {
    const AttentionSpec& s = problem_.spec;
    return tensor({{s.src[0], s.heads, s.positions(), 1},
                   {s.heads * s.positions(), s.positions(), 1, 1},
                   CUDNN_DATA_FLOAT,
                   role});
  }
  // Like dst, head after head.
  View of_heads(std::int64_t role, cudnnDataType_t type) {
    const AttentionSpec& s = problem_.spec;
    const std::int64_t n = s.positions(), size = s.head_size();
    return tensor({{s.src[0], s.heads, n, size}, {s.heads * n * size, n * size, size, 1}, type, role});
  }
  View matmul(const View& a, const View& b, const View& result);
  View pointwise(cudnnPointwiseMode_t, const View& x, const View* b, const View& result,
                 const View* selector = nullptr);
  View index(const View& scores, std::int64_t axis);
  View reduce(cudnnReduceTensorOp_t, const View& x, const View& result);
  View reshape(const View& x, const View& result);
  View draw(double probability, const View& seed, const View& offset);
  View dropout_mask();
  View scaled_scores(const View& queries, const View& keys, const View& scale);
  View masked(const View& scores);
  void to_key_heads(const View& a, const View& b, std::int64_t role);
  void forward();
  void backward();

  AttentionProblem problem_;
  cudnnDataType_t type_;
  std::int64_t next_role_ = first_virtual_role;  // of virtual tensors
};

}  // namespace millrace::cuda::cudnn
