// Network: a model's parameters, their gradients and moments in flat buffers, and the prepared Programs over them, one
// for each row count and mode. Everything is sized before anything is allocated; construction is the only place that
// allocates.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/compute/execution_context.hpp"
#include "millrace/model/program.hpp"
#include "millrace/model/zoo.hpp"
#include "millrace/train/distributed/weight_all_gather.hpp"

namespace millrace {

struct NetworkSpec {
  ModelSpec model;
  ModelBatch batch;  // rows ignored
  DType compute = DType::f32;
  int fusion = -1;
  std::vector<std::int64_t> train_rows;  // empty: no training, no gradients and moments
  std::vector<std::int64_t> eval_rows;
  OptimizerSpec optimizer;  // counts and segments are filled in
  float weight_decay = 0;
  DType grad_dtype = DType::f32;
  BucketSpec buckets;  // divided: the optimizer's state is, over the ranks
  std::uint64_t seed = 1;
};

// Bytes by purpose, before anything is allocated.
struct NetworkMemory {
  std::size_t parameters = 0, gradients = 0, moments = 0, arena = 0, packed_weights = 0;
  std::size_t loaders = 0;  // batches read ahead; not the network's own: a Session's plan has them
  std::size_t total() const { return parameters + gradients + moments + arena + packed_weights + loaders; }
};

// Sizes only: what a Network will need.
struct NetworkPlan {
  std::vector<CompiledGraph> train, eval;  // in the order of the row counts
  ParameterLayout layout;
  OptimizerSpec optimizer;  // complete
  NetworkMemory needs;
};
NetworkPlan plan_network(Backend&, const NetworkSpec&);

class Network {
 public:
  // Error(config) when the device has too little memory, with both figures.
  Network(ExecutionContext&, const NetworkSpec&);
  Network(ExecutionContext&, const NetworkSpec&, NetworkPlan);

  Program& train_program(std::int64_t rows) { return repacked_program(train_, rows); }
  // For work that may be recorded: it refreshes the program's derived weights itself, before its first use in a step.
  Program& step_program(std::int64_t rows);
  Program& eval_program(std::int64_t rows) { return repacked_program(eval_, rows); }
  const Graph& graph() const { return graph_; }
  const ParameterLayout& layout() const { return layout_; }
  const NetworkMemory& needs() const { return needs_; }
  StepState& host_state() { return host_state_; }
  // write_step() puts the values of the next step into one of two pinned copies, chosen by the step's parity. The last
  // push_step() from that copy must have ended. push_step() enqueues the transfer of the copy to the device on the
  // compute stream, and may be part of a captured step.
  void write_step(int parity);
  void push_step(int parity);
  void push_state();  // all of it: at the start, after a checkpoint was read
  // Copies the whole state to copy 0 or 1 without waiting, also as part of a captured step; read_state waits for it.
  void copy_state_to_host(int parity);
  const StepState& read_state(int parity);

  // Enqueues, and changes nothing on the host: it may be part of a recorded step. Marks 2 * optimizer_waits().
  void optimizer_step(TimestampSeries = {});
  int optimizer_waits() const { return weight_all_gather_ ? optimizer_->phases() - 1 : 0; }
  // Null: every rank updates all weights. Else, between optimizer_step() and the gatherer's next round, weights are
  // those of the last step but for this rank's own. A step is the next round: its first micro-batch's forward gets the
  // gatherer as its gate, between begin() and finish(), and refreshes what it uses; gathered() says so on the host.
  WeightAllGather* weight_all_gather() { return weight_all_gather_.get(); }
  void gathered() { complete_ = version_; }
  void complete_weights();  // gathers at once, where weights are not complete. Collective
  void mark_weights_updated() {
    ++version_;
  }                         // after optimizer_step(): derived copies are refreshed when a program is used next
  void clear_statistics();  // a rank without rows: its part of the running statistics is zero
  void weights_changed();   // after the master was written from outside: rounds the 16-bit weights anew

  // Flat views, for the reducer and checkpoints.
  SharedRegion gradient, grad_16bit, stats;
  float* master() const { return master_data_; }
  float* running() const { return running_.as<float>(); }
  const BucketSpec& buckets() const { return buckets_; }  // divided: moments hold its slices alone, one after the other
  float* moment(int i) const { return i < int(moments_.size()) ? moments_[std::size_t(i)].as<float>() : nullptr; }
  int moment_count() const { return int(moments_.size()); }

 private:
  struct Prepared {
    std::unique_ptr<Program> program;
    std::uint64_t version = 0;
  };
  // The parts of construction, in this order.
  void require_memory() const;
  void allocate(const NetworkSpec&, const NetworkPlan&);
  void initialise_weights(std::uint64_t seed);
  void prepare_training(const NetworkSpec&, const NetworkPlan&);
  void prepare_programs(NetworkPlan&);
  Buffer device_buffer(std::size_t bytes) const;

  Program& repacked_program(std::map<std::int64_t, Prepared>&, std::int64_t rows);
  ExecutionContext& compute_;
  Graph graph_;
  ParameterLayout layout_;
  NetworkMemory needs_;
  DType dtype_;
  SharedRegion shared_master_, squares_;  // with a gatherer
  float* master_data_ = nullptr;
  Buffer master_, weights_, running_, arena_, packed_weights_, state_, pushed_, state_copies_;
  std::array<std::unique_ptr<Event>, 2> state_ready_;
  std::vector<Buffer> moments_;
  BucketSpec buckets_;
  std::int64_t square_sums_ = 0;
  std::unique_ptr<WeightAllGather> weight_all_gather_;
  std::unique_ptr<OptimizerOp> optimizer_;
  OptimizerArgs optimizer_args_;
  std::map<std::int64_t, Prepared> train_, eval_;
  StepState host_state_;
  std::uint64_t version_ = 1, complete_ = 1;  // complete_: the last version whose weights are all here
};

}  // namespace millrace
