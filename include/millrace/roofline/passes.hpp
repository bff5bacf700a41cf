// The passes of a training step on the CUDA backend: which kernels run, what they read and write in device memory, and
// how many floating-point operations they do. They follow from the graph, so they exist for every network, and need no
// GPU. src/roofline counts what the kernels of src/cuda do; a kernel that changes there must change here.
//
// A tensor is counted once for each pass that reads or writes it. Windows that overlap, and rows that a kernel reads
// again soon, come from the caches and are not counted. Values of a single channel each, such as the sums of a batch
// norm, are not counted either.
#pragma once
#include <string>
#include <vector>

#include "millrace/model/graph.hpp"
#include "millrace/ops/batch_norm_layout.hpp"

namespace millrace::roofline {

// The rows of the table.
enum class PassKind {
  input,
  conv_forward,
  norm_statistics,
  norm_apply,
  linear_forward,
  conv_data_gradient,
  conv_weight_gradient,
  norm_gradient_sums,
  norm_gradient_apply,
  layer_norm,
  attention,
  linear_data_gradient,
  linear_weight_gradient,
  gradient_add,
  activation,
  add,
  dropout,
  pool,
  embedding,
  loss,
  bias,
  padding,
  weights,
  optimizer,
  gradient_conversion,
  state
};
constexpr int pass_kinds = int(PassKind::state) + 1;
const char* name_of(PassKind);   // "batch norm statistics"
const char* json_key(PassKind);  // "norm_statistics"

enum class Phase { forward, backward, update };

struct Pass {
  PassKind kind = PassKind::input;
  Phase phase = Phase::forward;
  std::string node;  // name of the operation; empty for work of the whole step
  double bytes = 0, flops = 0;
  DType factors = DType::f32;  // type of the factors of the products that `flops` counts
  int launches = 1;            // kernels and copies, one after the other
  bool exact = false;          // kernels of millrace's own, which multiply float32 exactly, also with cuda.tf32
};

// A forward and a backward pass over one micro-batch. `first`: the first micro-batch of a step, whose weight gradients
// overwrite the flat gradient; later ones add to it. The graph is rewritten for its fusion level. Norms that fit into
// the memory of the multiprocessors read their tensors once.
std::vector<Pass> micro_batch_passes(const Graph&, bool first, const batch_norm::OnChipMemory& = {});
// The backend's copies of the weights, made again after each change of them.
std::vector<Pass> repack_passes(const Graph&);
// OptimizerSpec: complete, with the shards of this rank.
std::vector<Pass> optimizer_passes(const OptimizerSpec&);

}  // namespace millrace::roofline
