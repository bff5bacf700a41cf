// The cuDNN graph of a convolution and the operations that are fused with it.
#pragma once
#include "cuda/dnn/cudnn_graph.hpp"
#include "millrace/ops/spatial.hpp"

namespace millrace::cuda::cudnn {

enum class Direction { forward, backward_data, backward_weights };

// The tensors of the graph. A gradient has the role of the tensor that it is the gradient of. The roles from
// virtual_roles on exist only between the operations of a graph and have no memory.
enum Role : std::int64_t {
  src_role = 1,
  weight_role,
  dst_role,
  bias_role,
  sum_role,
  square_role,
  norm_src_role,
  mean_role,
  inverse_role,
  gamma_role,
  beta_role,
  diff_gamma_role,
  diff_beta_role,
  factor_role,  // this and the next two: outputs of cuDNN's pattern that millrace does not use
  slope_role,
  offset_role,
  src_scale_role,
  src_bias_role,
  virtual_roles,
  conv_role = virtual_roles,
  centered_role,
  scaled_role,
  weighted_role,
  normed_role,
  src_scaled_role,
  src_shifted_role,
  src_normalised_role
};

// One convolution in one direction. Shapes are (N, spatial..., C) and (K, kernel..., C / groups), as everywhere in
// millrace.
struct ConvProblem {
  Direction direction = Direction::forward;
  DType dtype = DType::f32;  // of all tensors except the sums, statistics and parameters of a norm, which are float32
  Shape src, weight, dst;
  Window window;
  bool bias = false;  // forward: dst = conv + bias
  bool add = false;   // the result is added to the previous contents
  bool sums = false;  // forward: also sums dst and its square over each channel
  // backward_data: the result is multiplied by the derivative of the ReLU behind a batch norm. Then the gradients of
  // the norm's gamma and beta are summed for each channel.
  bool norm = false;
  // forward and backward_weights: relu(scale * src + bias) takes the place of src, with a scale and a bias of each
  // channel in dtype.
  bool normalise = false;
  std::string key() const;
  std::vector<Argument> arguments() const;
  operator Problem() const;
};

class ConvGraph : public Graph {
 public:
  ConvGraph(const DeviceTarget&, const ConvProblem&);

 private:
  const Descriptor& intermediate(const Shape&, Role);  // a virtual tensor in float32
  const Descriptor& normalised(const ConvProblem&, const Descriptor& src);
  void pointwise(cudnnPointwiseMode_t, const Descriptor& x, const Descriptor* b, const Descriptor& result);
  void sums(const ConvProblem&, const Descriptor& dst);
  void norm(const ConvProblem&, const Descriptor& diff, const Descriptor& passed);
};

}  // namespace millrace::cuda::cudnn
