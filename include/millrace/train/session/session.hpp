// Session: a RunConfig resolved against the data, the ranks and the device. Commands that train, evaluate, plan or
// probe a run build the same Session, so that they all describe the same run. It is assembled from these parts:
//
//   compute   ExecutionContext: device, operations, collective    make_compute.hpp
//   data      DataSets: indexes and readers of the data           data_sets.hpp
//   batching  Batching: batch sizes, order of samples, balancer   batching.hpp
//   spec      NetworkSpec: model, optimizer, buckets, row counts  network.hpp
//
// It does not allocate the network; class Network does.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "millrace/config/schedule.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/train/distributed/reducer.hpp"
#include "millrace/train/session/batching.hpp"
#include "millrace/train/session/capture_partition.hpp"
#include "millrace/train/session/data_sets.hpp"
#include "millrace/train/session/make_compute.hpp"
#include "millrace/train/session/model_record.hpp"
#include "millrace/train/session/network.hpp"

namespace millrace {

struct Session {
  enum class Use { train, evaluate };
  // trained: the model whose weights will be loaded, or null. Its normalisation and classes are used; an evaluation
  // then needs no training data. Collective. world and config must outlive the Session. Error(config), Error(data):
  // also if the configuration and the data give another function than `trained`.
  Session(World&, const RunConfig&, Use, const ModelRecord* trained = nullptr);

  World& world;
  const RunConfig& config;
  const Use use;
  Placement placement;
  ExecutionContext compute;
  DataSets data;
  Batching batching;
  NetworkSpec spec;

  std::int64_t total_steps() const;  // steps of the whole run, from train.steps or train.epochs
  // Micro-batches of rank 0 in a full step, if they are evenly distributed.
  int accumulation() const;
  // A function that returns this rank's micro-batches of steps [from, to), one at each call, then nullopt.
  std::function<std::optional<MicroBatch>()> micro_batches(std::int64_t from, std::int64_t to) const;

  // The same of one pass over the validation data, in its order.
  std::function<std::optional<MicroBatch>()> valid_micro_batches() const;

  LoaderOptions loader_options() const;       // for a loader that is asked for one batch at a time
  LoaderOptions step_loader_options() const;  // for training, which takes all batches of a captured group at once
  CapturePartition capture_partition(std::int64_t micro_batch) const;
  ReducerSpec reducer_spec(std::int64_t gradient_count, const BucketSpec&) const;
  // Whether a dedicated thread drives the communication on the CPU while the step computes.
  bool progress_thread() const;
  bool strict() const { return config.run.reproducible == Reproducible::strict; }

  // The plan of a network with micro-batches of this many rows, including the memory of the loaders. Allocates nothing.
  NetworkPlan plan(std::int64_t rows) const;
  std::size_t memory_bytes() const;  // device memory that this rank may use

  ModelRecord model_record() const;  // with the tokenizer on rank 0 only

  // The properties that must stay the same for a resumed run to be bitwise equal to an uninterrupted one.
  std::map<std::string, std::string> provenance() const;
  std::string methods_of_convolutions() const;
};

}  // namespace millrace
