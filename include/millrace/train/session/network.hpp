// Network: the parameters of a model, their gradients and moments in flat buffers, and the Programs that use them, one
// for each row count and mode. All sizes are known before anything is allocated, and only the constructor allocates.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/compute/execution_context.hpp"
#include "millrace/config/parameter_group.hpp"
#include "millrace/model/program.hpp"
#include "millrace/model/zoo.hpp"
#include "millrace/train/distributed/norm_exchange.hpp"
#include "millrace/train/distributed/weight_all_gather.hpp"
#include "millrace/train/session/weight_average.hpp"

namespace millrace {

struct NetworkSpec {
  ModelSpec model;
  ModelBatch batch;  // its rows are ignored
  DType compute = DType::f32;
  int fusion = -1;
  Recompute recompute = Recompute::off;
  std::int64_t logits_memory = 0;
  std::vector<std::int64_t> train_rows;  // empty: no training, so no gradients and moments
  std::vector<std::int64_t> eval_rows;
  OptimizerSpec optimizer;  // plan_network() fills in counts, segments, shards and weight_dtype
  float weight_decay = 0;
  std::vector<ParameterGroup> groups;  // exceptions, by the name of a parameter
  DType grad_dtype = DType::f32;
  BucketSpec buckets;  // sharded: the state of the optimizer is sharded over the ranks too. plan_network() completes it
  std::uint64_t seed = 1;
  // Labels may be ignored, or have weights: the gradient is divided by the weight of the labels that count.
  bool weighted_loss = false;
  bool sync_batch_norm = false;  // over `ranks` ranks, of which this is number `rank`
  // Mode::infer: the values that the graph ends in, in place of its losses (keep_outputs()); empty: it has losses.
  std::vector<int> outputs = {};
  int ranks = 1, rank = 0;
  void shard_optimizer() { buckets.ranks = ranks, buckets.rank = rank; }  // ZeRO stage 1
};

// The graph of a micro-batch of this many rows, before any rewrite.
Graph graph_of(const NetworkSpec&, std::int64_t rows, Mode);
// The members of spec.buckets and spec.optimizer that depend on the parameters are filled in.
BucketSpec complete_buckets(const NetworkSpec&, const ParameterLayout&);
OptimizerSpec complete_optimizer(const NetworkSpec&, const Graph&, const ParameterLayout&, const BucketSpec& complete);

// Bytes by purpose, before anything is allocated.
struct NetworkMemory {
  std::size_t parameters = 0, gradients = 0, arena = 0, packed_weights = 0;
  std::size_t moments = 0;  // with averages of the weights, and what muon needs for its products
  std::size_t metrics = 0;  // of an evaluation
  std::size_t loaders = 0;  // device slots of the loaders; only Session::plan() sets it
  // What this rank copies for a checkpoint. It is host memory, so it is 0 on a device with its own memory; only
  // Session::plan() sets it.
  std::size_t checkpoint_copy = 0;
  // What the process used before it planned its first network; otherwise as above. Not in total(), which is compared
  // with memory that was free then.
  std::size_t program = 0;
  std::size_t total() const {
    return parameters + gradients + moments + arena + packed_weights + metrics + loaders + checkpoint_copy;
  }
};

// The compiled graphs and sizes of a Network. plan_network() allocates no device memory.
struct NetworkPlan {
  std::vector<CompiledGraph> train, eval;  // in the order of the row counts
  ParameterLayout layout;
  OptimizerSpec optimizer;  // complete
  BucketSpec buckets;       // complete; not sharded without training
  NetworkMemory needs;
  std::int64_t norm_channels = 0;  // of the widest norm, if norms are synchronised

  const Graph& any_graph() const;
  std::size_t master_count() const;
  static constexpr std::size_t loss_weight_bytes = 3 * sizeof(double);
};
NetworkPlan plan_network(Backend&, const NetworkSpec&);

class Network {
 public:
  // Error(config) if the device has too little memory; the message contains the needed and the available bytes.
  Network(ExecutionContext&, const NetworkSpec&);
  Network(ExecutionContext&, const NetworkSpec&, NetworkPlan);

  // To look at, not to run: its packed weights may be out of date.
  const Program& planned_program(std::int64_t rows) const { return *train_.at(rows).program; }
  Program& train_program(std::int64_t rows) { return repacked_program(train_, rows); }
  // For training steps, which may be captured. Unlike train_program() it does not repack the program's weights. The
  // step must do that before it first uses the program.
  Program& step_program(std::int64_t rows);
  // Whether micro-batches wait for those of other ranks. All ranks must then run equally many; a rank with fewer rows
  // calls these two in place of forward() and backward() of a Program.
  bool synchronised() const { return norm_exchange_ != nullptr; }
  void forward_without_rows(ParamReadyHook* gate) { train_.begin()->second.program->forward_without_rows(gate); }
  void backward_without_rows(GradReadyHook* sink) { train_.begin()->second.program->backward_without_rows(sink); }
  Program& eval_program(std::int64_t rows) { return repacked_program(eval_, rows); }
  // For further programs of the caller, which has to repack their weights. With the arena of this network.
  ProgramMemory program_memory() const;
  const Graph& graph() const { return graph_; }
  const ParameterLayout& layout() const { return layout_; }
  const NetworkMemory& needs() const { return needs_; }
  bool has_input_pass() const { return training() && train_.begin()->second.program->has_input_pass(); }
  bool training() const { return !train_.empty(); }  // it has gradients and moments
  StepState& host_state() { return host_state_; }
  // The state that the device works on. Only on a device that shares the host's memory.
  StepState& device_state() { return *state_.as<StepState>(); }
  // write_step() puts the values of the next step into one of two pinned copies, chosen by the step's parity. The last
  // push_step() from that copy must have ended. push_step() enqueues the transfer of the copy to the device on the
  // compute stream, and may be part of a captured step.
  void write_step(int parity);
  void push_step(int parity);
  void push_state();  // copies the whole state and waits: at the start, and after a checkpoint was read
  // Enqueues the transfer of the whole state to one of two host copies; may be part of a captured step. read_state()
  // waits for the transfer.
  void copy_state_to_host(int parity);
  const StepState& read_state(int parity);

  // What the losses add up for the metrics of an evaluation (ops/loss.hpp), one behind the other, 8 bytes each; empty:
  // there is nothing.
  // clear_metrics() sets them to zero, except for the origins of a regression's targets, by place. Both wait for the
  // device.
  void clear_metrics(const std::map<std::size_t, std::vector<double>>& origins);
  std::vector<std::uint64_t> read_metrics();
  void* device_metrics() { return metrics_.data(); }

  // Enqueues the optimizer. Changes nothing on the host, so it may be part of a captured step. Records timestamps
  // before and after each of its optimizer_waits() waits for other ranks.
  void optimizer_step(TimestampSeries = {});
  int optimizer_waits() const { return weight_all_gather_ ? optimizer_->phases() - 1 : 0; }
  // Null if every rank updates all weights. Otherwise a rank has new weights only for its own shards after
  // optimizer_step(), until the next all-gather. A training step starts with this all-gather: the forward pass of its
  // first micro-batch gets it as ParamReadyHook, between begin() and finish(), and repacks the weights as they arrive.
  // The code that enqueues such a step calls gathered(), which notes on the host that the weights are complete.
  WeightAllGather* weight_all_gather() { return weight_all_gather_.get(); }
  void gathered() { complete_ = version_; }
  void complete_weights();  // all-gathers the weights now, unless they are complete. Collective
  // Call it after optimizer_step(): a program's weights are then repacked at its next use.
  void mark_weights_updated() { ++version_; }
  // Sets this rank's contribution to the batch statistics to zero: for a rank without rows.
  void clear_statistics();
  // Enqueues a copy of the state's loss_weight to the region of this name, for the all-reduce.
  void copy_loss_weight();
  // Call it after the master weights that this rank stores were written from outside: updates the 16-bit weights. They
  // are complete after the next all-gather.
  void weights_changed();

  // Flat buffers, for the reducer and checkpoints.
  SharedRegion gradient, grad_16bit, stats;
  SharedRegion loss_weight;  // three doubles, for OptimizerArgs::loss_weight; without memory unless spec.weighted_loss
  // The first whole_master() elements, then only this rank's shards behind them, one after the other.
  float* master() const { return master_data_; }
  std::int64_t whole_master() const { return buckets_.whole(layout_.count); }
  float* running() const { return running_.as<float>(); }
  // If the buckets are sharded, the moments contain only this rank's shards, one after the other.
  const BucketSpec& buckets() const { return buckets_; }
  float* moment(int i) const { return i < int(moments_.size()) ? moments_[std::size_t(i)].as<float>() : nullptr; }
  int moment_count() const { return int(moments_.size()); }
  // The averages of the weights, stored like the moments; null without optim.ema, and without training.
  float* average() const { return average_ ? average_->data() : nullptr; }
  // Without training, and with optim.ema: the weights are averages.
  bool weights_are_averages() const { return averages_ && !training(); }
  // Exchanges the weights with their averages, if there are any; for an evaluation, before and after it.
  void swap_averages();
  void restart_averages();  // from the weights as they are

 private:
  struct Prepared {
    std::unique_ptr<Program> program;
    std::uint64_t version = 0;
  };
  // The steps of construction, in this order.
  void require_memory() const;
  void allocate(const NetworkPlan&);
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
  SharedRegion shared_master_, shared_weights_, squares_;  // only with sharded buckets
  float* master_data_ = nullptr;
  void* weights_data_ = nullptr;  // null with float32
  Buffer master_, weights_, running_, arena_, packed_weights_, state_, pushed_, state_copies_, metrics_;
  std::array<std::unique_ptr<Event>, 2> state_ready_;
  std::vector<Buffer> moments_;
  BucketSpec buckets_;
  std::int64_t square_sums_ = 0;
  std::vector<Bucket> update_buckets_;  // which the optimizer all-gathers; see OptimizerArgs::updates
  std::unique_ptr<WeightAllGather> weight_all_gather_;
  std::unique_ptr<NormExchange> norm_exchange_;  // null: norms are not synchronised
  bool averages_ = false;                        // optim.ema
  std::unique_ptr<WeightAverage> average_;
  std::unique_ptr<OptimizerOp> optimizer_;
  OptimizerArgs optimizer_args_;
  std::map<std::int64_t, Prepared> train_, eval_;
  StepState host_state_;
  std::uint64_t version_ = 1, complete_ = 1;  // complete_: the last version whose weights are complete on this rank
};

}  // namespace millrace
