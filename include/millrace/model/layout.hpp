// ParameterLayout: where each parameter lies in the flat buffers (master, weights, gradient, moments). Forward order,
// each padded to 256 bytes of float32, so that backward fills the gradient from its end and buckets are contiguous
// slices.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/model/graph.hpp"

namespace millrace {

struct ParameterLayout {
  static constexpr std::int64_t padding = 64;  // elements
  struct Slot {
    std::int64_t begin = 0, count = 0, end = 0;  // end: begin of the next
  };
  std::vector<Slot> parameters;  // by number of the graph's parameter
  std::vector<Slot> stats;       // in the running and stats buffers: mean (C), variance (C)
  std::int64_t count = 0, stats_count = 0;

  explicit ParameterLayout(const Graph&);
  // Neighbours with the same decay share a segment, unless the optimizer looks at each matrix.
  std::vector<OptimizerSegment> segments(const Graph&, float weight_decay, const OptimizerSpec& = {}) const;
  // Fills master (float32, `count`) and running from the seed: element i of parameter p depends on (seed, name of p, i)
  // alone.
  void initialise(const Graph&, std::uint64_t seed, float* master, float* running) const;
};

}  // namespace millrace
