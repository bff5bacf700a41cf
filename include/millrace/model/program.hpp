// Program: a graph lowered to one backend: prepared ops over planned memory. lower() does all that can fail or needs
// sizes; Program only holds addresses and runs. One Program per distinct row count and mode; all share parameters and
// one arena.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "millrace/model/graph.hpp"
#include "millrace/model/layout.hpp"

namespace millrace {

// Told, during the last micro-batch's backward, which elements [begin, end) of the flat gradient are final; last block
// first.
class GradReadyHook {
 public:
  virtual ~GradReadyHook() = default;
  virtual void on_gradient_ready(std::int64_t begin, std::int64_t end) = 0;
};

// Asked before an op's forward for the elements [begin, end) of the flat weights that it will read: it makes the
// compute stream wait until they are there.
class ParamReadyHook {
 public:
  virtual ~ParamReadyHook() = default;
  virtual void wait_for(std::int64_t begin, std::int64_t end) = 0;
};

// Offsets in the arena of one region that lives during steps [first, last] of the 2n-step schedule (n forwards, then n
// backwards).
struct Region {
  std::string name;
  std::size_t bytes = 0, offset = 0;
  int first = 0, last = 0;
};

// Assigns offsets so that regions alive at the same time never overlap (largest first, lowest fit); returns the arena's
// bytes.
std::size_t place_regions(std::vector<Region>&);

struct MemoryPlan {
  std::vector<Region> regions;
  std::size_t arena_bytes = 0;          // activations, their gradients, saved state, workspace
  std::size_t packed_weight_bytes = 0;  // the backend's weight copies, kept between steps
};

struct CompiledGraph {
  Graph graph;
  std::vector<std::unique_ptr<Op>> ops;  // one a node
  std::vector<std::unique_ptr<Op>>
      gradient_adders;  // by value: sums the gradients of a value with several users; else null
  std::vector<int> value_region, diff_region, saved_region, extra_region;  // into plan.regions; -1: none
  int workspace_region = -1;
  std::vector<std::size_t> packed_weight_offset;
  MemoryPlan plan;
  Device* device = nullptr;        // the backend's
  int fusion_level = 0;            // that was used
  std::vector<std::string> notes;  // what stayed unfused at this level, and why

  Cost cost() const;  // of a forward and a backward pass (or a forward alone, Mode::infer)
};

// fusion_level: -1 for the backend's usual one; more than it has is less than asked, and noted.
CompiledGraph compile_graph(Backend&, Graph, int fusion_level);

struct ProgramMemory {
  void* arena = nullptr;
  void* packed_weights = nullptr;
  float* master = nullptr;
  void* weights = nullptr;  // compute precision; the master itself in float32
  float* gradient = nullptr;
  float* running = nullptr;
  float* stats = nullptr;
  StepState* state = nullptr;
};

class Program {
 public:
  Program(CompiledGraph, const ParameterLayout&, const ProgramMemory&);
  const Graph& graph() const { return compiled_.graph; }
  const MemoryPlan& plan() const { return compiled_.plan; }
  const Op& op(int node) const { return *compiled_.ops[std::size_t(node)]; }

  void repack_weights();  // after the master or the weights changed
  // first: the first micro-batch of a step writes gradients and statistics, the others add.
  // With a gate, weights are still to come: each op's derived copies are refreshed when its weights are there.
  void forward(const Tensor& x, const Tensor& y, const Tensor& ids, bool first, ParamReadyHook* gate = nullptr,
               TimestampSeries around_input = {});
  void backward(bool first, GradReadyHook* sink);
  // One node alone, on whatever its buffers hold: benches.
  void run_node(int node, bool backward);
  const Tensor& value(int v) const { return values_[std::size_t(v)]; }
  // What the device is told a node's work is called: "conv1 forward". The address is this program's own.
  const char* label(int node, bool backward) const {
    const Labels& of = labels_[std::size_t(node)];
    return (backward ? of.backward : of.forward).c_str();
  }

 private:
  struct Labels {
    std::string forward, backward, repack;
  };
  struct Binding;
  void* region(const ProgramMemory&, int number) const;  // null for a negative number
  void bind_values(std::size_t node, Binding&);
  void bind_weights(std::size_t node, const ProgramMemory&);
  void bind_norm(std::size_t node, const ProgramMemory&);
  void find_final_parameters();
  void backward_node(int node, bool first);
  CompiledGraph compiled_;
  ParameterLayout layout_;
  std::vector<Tensor> values_;
  std::vector<OpArgs> args_;
  std::vector<Labels> labels_;  // by node
  struct Addition {             // after a node's backward: diff of value += extra
    int value = -1;
    OpArgs args;
  };
  std::vector<std::vector<Addition>> additions_;      // by node
  std::vector<std::vector<int>> final_params_after_;  // by node: parameters final after its backward
  std::vector<int> first_user_;                       // by parameter: the node whose backward touches it first
};

}  // namespace millrace
