// ParameterLayout: the position of each parameter in the flat buffers (master, weights, gradient, moments). Parameters
// that operations read as float32 come first, then those that they read in 16 bits: none with a float32 network. Both
// are in forward order, each padded to 256 bytes of float32. So the backward pass fills the gradient from its end,
// buckets are contiguous slices, and the float32 weights that every rank needs are one slice (BucketSpec).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/model/graph.hpp"

namespace millrace {

// How the optimizer treats one parameter.
struct ParameterRule {
  float weight_decay = 0;
  float lr_factor = 1;                 // on the learning rate
  bool frozen = false;                 // the optimizer does not change it
  std::int64_t rows = 0, columns = 0;  // of the matrix that muon updates; 0: it does not update it
  bool operator==(const ParameterRule&) const = default;
};
// One rule for each parameter: only matrices decay.
std::vector<ParameterRule> default_rules(const Graph&, float weight_decay);
// Sets rows and columns of the weights that muon updates: those of linear layers and convolutions, also transposed
// ones, but not those that an embedding uses too. The first axis has the rows; all others are the columns.
void add_matrices(const Graph&, std::vector<ParameterRule>&);

struct ParameterLayout {
  static constexpr std::int64_t padding = 64;  // elements
  struct Slot {
    std::int64_t begin = 0, count = 0, end = 0;  // in elements; end: begin of the next slot, after the padding
  };
  std::vector<Slot> parameters;  // by index of the parameter in the graph
  std::vector<Slot> stats;       // in the running and stats buffers: mean (C), then variance (C)
  std::int64_t count = 0, stats_count = 0;
  std::int64_t f32_count = 0;  // elements [0, f32_count) are read as float32

  explicit ParameterLayout(const Graph&);
  // Adjacent parameters with the same rule share a segment, unless the optimizer treats each decaying parameter
  // separately (LARS and LAMB), or as a matrix (Muon). Frozen parameters are in no segment.
  std::vector<OptimizerSegment> segments(const std::vector<ParameterRule>&, const OptimizerSpec& = {}) const;
  // Sets the initial values of master (float32, `count` elements) and running (`stats_count`). Element i of parameter p
  // depends only on the seed, the name of p, and i.
  void initialise(const Graph&, std::uint64_t seed, float* master, float* running) const;
};

}  // namespace millrace
