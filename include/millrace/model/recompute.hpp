// Activation recomputation (Chen et al. 2016): results that the backward pass needs are not kept. It runs their
// operations again instead. The values are the same, bit for bit, if the operations are deterministic.
#pragma once
#include <vector>

#include "millrace/model/graph.hpp"

namespace millrace {

enum class NodeWork { forward, recompute, backward };

struct BackwardStep {
  int node = -1;
  NodeWork work = NodeWork::backward;  // or recompute: the forward pass of this node again
};

// What the backward pass does, in order. Node i of n runs forward at time i, and steps[k] runs at time n + k.
struct BackwardSchedule {
  std::vector<BackwardStep> steps;
  std::vector<int> backward_time, recompute_time;  // by node; -1: does not run
  int end_time = 0;                                // the time after the last step
  bool recomputes(int node) const { return recompute_time[std::size_t(node)] >= 0; }
  int recomputed_count() const;
};

// The values that the passes of a node read. Values of the batch (Graph::x, y and ids) are not among them.
std::vector<int> forward_reads(const Graph&, const Node&);
std::vector<int> backward_reads(const Graph&, const Node&);

// By graph.recompute, for a graph after all rewrites. In Mode::infer, nothing.
//
//   off        Nothing is recomputed.
//   selective  Results of operations that are bound by memory bandwidth (norms, activations, gates, ...) whose sources
//              are kept anyway.
//   full       The nodes are divided into segments. Only values that a later segment reads, and all of the last
//              segment, are kept. Of several divisions, the one with the fewest bytes in use at the same time is taken.
BackwardSchedule schedule_backward(const Graph&);

}  // namespace millrace
