// Program: a graph compiled for one backend, as prepared operations over planned memory. compile_graph() does
// everything that can fail or depends on sizes; a Program only binds addresses and runs. There is one Program for each
// row count and mode. All of them share the parameters and one arena.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/model/graph.hpp"
#include "millrace/model/layout.hpp"
#include "millrace/model/recompute.hpp"

namespace millrace {

// Called during the backward pass of the last micro-batch for each range [begin, end) of the flat gradient that is
// final. The ranges come from the end of the gradient to its beginning.
class GradReadyHook {
 public:
  virtual ~GradReadyHook() = default;
  virtual void on_gradient_ready(std::int64_t begin, std::int64_t end) = 0;
};

// Called before the forward pass of an operation, for each range [begin, end) of the flat weights that it reads. Makes
// the compute stream wait until these weights have arrived.
class ParamReadyHook {
 public:
  virtual ~ParamReadyHook() = default;
  virtual void wait_for(std::int64_t begin, std::int64_t end) = 0;
};

struct Lifetime {
  int first = 0, last = 0;
};

// A range of the arena that is in use during times [first, last], and during `again` if its contents are recomputed.
// BackwardSchedule defines the times.
struct Region {
  std::string name;
  std::size_t bytes = 0, offset = 0;
  int first = 0, last = 0;
  std::optional<Lifetime> again = {};
};

// Assigns offsets so that regions in use at the same time never overlap. Places the largest region first, each at the
// lowest offset that fits. Returns the size of the arena in bytes.
std::size_t place_regions(std::vector<Region>&);

struct MemoryPlan {
  std::vector<Region> regions;
  std::size_t arena_bytes = 0;          // activations, their gradients, saved state, workspace
  std::size_t packed_weight_bytes = 0;  // the backend's copies of the weights, kept between steps
  std::size_t cache_bytes = 0;          // what operations keep between calls; see with_cache()
};

struct CompiledGraph {
  Graph graph;
  std::vector<std::unique_ptr<Op>> ops;  // by node
  BackwardSchedule schedule;
  std::vector<GradientStores> gradient_stores;  // by node
  // By value: adds the gradient of a further reader that cannot accumulate; null: the value has no such reader.
  std::vector<std::unique_ptr<Op>> gradient_adders;
  // Indices into plan.regions; -1: none. saved_region is by node, the others by value. extra_region: scratch for
  // what an adder adds.
  std::vector<int> value_region, diff_region, saved_region, extra_region;
  // unused_stats_region: where a norm that runs again writes the statistics of the micro-batch, which it has already
  // written.
  int workspace_region = -1, unused_stats_region = -1;
  std::vector<std::optional<std::size_t>> packed_weight_offset;  // by node, in bytes; nullopt: the operation keeps none
  std::vector<std::size_t> cache_offset;                         // by node, in bytes
  MemoryPlan plan;
  // The first node would copy the samples (Op::is_copy()). It does not run: its readers read the samples themselves,
  // and a reshape copies them.
  bool leaves_out_input = false;
  Device* device = nullptr;        // the device of the backend
  int fusion_level = 0;            // the level that was used
  bool only_what_pays = false;     // the user set no level: of that level, only the fusions that pay
  std::vector<std::string> notes;  // what was not fused at this level, and why

  Cost cost() const;  // of a forward and a backward pass; in Mode::infer, of a forward pass
};

// Whether the input pass would be a copy that nothing needs: no output, loss or norm with shared values reads it.
bool can_leave_out_input(const Graph&, const Op& input);

// fusion_level: -1 for the backend's default. A level above the backend's maximum becomes the maximum, with a note.
// Error(config) with the reason if the backend lacks an operation.
CompiledGraph compile_graph(Backend&, Graph, int fusion_level);

// The memory that a Program works on. Not owned.
struct ProgramMemory {
  void* arena = nullptr;
  void* packed_weights = nullptr;
  float* master = nullptr;
  void* weights = nullptr;  // in the compute precision; not used with float32, which reads the master
  float* gradient = nullptr;
  float* running = nullptr;
  float* stats = nullptr;
  StepState* state = nullptr;
  void* metrics = nullptr;        // of all losses, for evaluations; null: none are wanted
  RankExchange* ranks = nullptr;  // for synchronised norms; null: each rank by itself
  void* cache = nullptr;          // plan.cache_bytes, which programs of a network may share; null: there are none
};

class Program {
 public:
  Program(CompiledGraph, const ParameterLayout&, const ProgramMemory&);
  const Graph& graph() const { return compiled_.graph; }
  const MemoryPlan& plan() const { return compiled_.plan; }
  const Op& op(int node) const { return *compiled_.ops[std::size_t(node)]; }
  // What the operation of a node executes.
  Cost forward_cost(int node) const {
    return runs(node) ? executed(millrace::forward_cost(spec(node)), op(node).work_share().forward) : Cost{};
  }
  Cost backward_cost(int node) const {
    return executed(millrace::backward_cost(spec(node)), op(node).work_share().backward);
  }

  void repack_weights();  // call after the master or the weights have changed
  // first: the first micro-batch of a step, which overwrites gradients and statistics; the others add to them.
  // gate: set while weights may still arrive. Each operation then waits for its weights and repacks them before it
  // runs. around_input: records a timestamp before and after the input pass. x must stay as it is until the end of the
  // backward pass.
  void forward(const Tensor& x, const Tensor& y, const Tensor& ids, bool first, ParamReadyHook* gate = nullptr,
               TimestampSeries around_input = {});
  void backward(bool first, GradReadyHook* sink);
  // False if the samples need no conversion, or if the network has several inputs.
  bool has_input_pass() const { return std::holds_alternative<InputSpec>(spec(0)) && !compiled_.leaves_out_input; }
  // For a rank without a micro-batch, while other ranks have one: takes part in what synchronised norms exchange. It
  // waits for weights and announces the same ranges of the gradient to the sink, but computes nothing. So all ranks
  // make the same calls that wait for each other in the same order, and none can wait for ever.
  void forward_without_rows(ParamReadyHook* gate);
  void backward_without_rows(GradReadyHook* sink);
  // For benchmarks: runs one node by itself on the present contents of its buffers.
  void run_node(int node, bool backward);
  // Null for the result of an input pass that is left out.
  const Tensor& value(int v) const { return values_[std::size_t(v)]; }
  // What the first loss compares with the labels or targets. It stays until the next forward pass of a program with the
  // same arena; with Mode::train, the backward pass overwrites it.
  const Tensor& prediction() const;
  // The label of a node's work on the device, such as "conv1 forward". Valid while this Program exists.
  const char* label(int node, NodeWork work) const { return labels_[std::size_t(node)].of(work).c_str(); }
  const BackwardSchedule& schedule() const { return compiled_.schedule; }

 private:
  const Spec& spec(int node) const { return graph().nodes[std::size_t(node)].spec; }
  bool runs(int node) const { return node > 0 || !compiled_.leaves_out_input; }
  static Cost executed(Cost cost, double share) {
    cost.flops *= share;
    return cost;
  }
  void repack(std::size_t node);
  void await_weights(std::size_t node, ParamReadyHook& gate);
  struct Labels {
    std::string forward, recompute, backward, repack;
    const std::string& of(NodeWork work) const {
      return work == NodeWork::forward ? forward : work == NodeWork::recompute ? recompute : backward;
    }
  };
  struct Binding;
  void* region(const ProgramMemory&, int number) const;  // null if the number is negative
  void bind_values(std::size_t node, Binding&);
  void bind_weights(std::size_t node, const ProgramMemory&);
  void bind_norm(std::size_t node, const ProgramMemory&);
  void find_final_parameters();
  void set_readers(int value, void* data);  // binds what reads the value to other memory
  void recompute_node(int node);
  void set_modes(std::size_t node, bool first);
  void backward_node(int node, bool first);
  void announce_gradients(int node, GradReadyHook* sink);
  // The arguments for a norm that meets the other ranks without rows; nullopt: the node does not meet them.
  std::optional<OpArgs> args_without_rows(int node) const;
  CompiledGraph compiled_;
  ParameterLayout layout_;
  std::vector<Tensor> values_;
  std::vector<OpArgs> args_;
  float* unused_stats_ = nullptr;
  std::vector<Labels> labels_;  // by node
  struct Addition {             // after the backward pass of a node: the gradient of value += extra
    int value = -1;
    OpArgs args;
  };
  std::vector<std::vector<Addition>> additions_;      // by node
  std::vector<std::vector<int>> final_params_after_;  // by node: parameters whose gradient is final after its backward
  std::vector<int> first_user_;                       // by parameter: the node that writes its gradient first
};

}  // namespace millrace
