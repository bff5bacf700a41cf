// Session: a RunConfig resolved against the data, the ranks and the device. Commands that train, evaluate, plan or
// probe a run build the same Session, so that they all describe the same run. It is assembled from named parts, each
// built by a function of its own:
//
//   compute   ExecutionContext: device, operations, collective    make_compute.hpp
//   data      DataSets: indexes and readers of the data           data_sets.hpp
//   batching  Batching: batch sizes, order of samples, balancer   batching.hpp
//   spec      NetworkSpec: model, optimizer, buckets, row counts  network.hpp
//
// It allocates no network: see Network.
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
#include "millrace/train/session/network.hpp"

namespace millrace {

struct Session {
  enum class Use { train, evaluate };
  // Collective. world and config must outlive the Session. Error(config), Error(data).
  Session(World&, const RunConfig&, Use);

  World& world;
  const RunConfig& config;
  const Use use;
  Placement placement;
  ExecutionContext compute;
  DataSets data;
  Batching batching;
  NetworkSpec spec;

  std::int64_t total_steps() const;  // of the run, from train.steps or train.epochs
  // Micro-batches of a rank in a full step, if they are evenly distributed.
  int accumulation() const;
  // Yields this rank's micro-batches of steps [from, to), one at each call, then nullopt.
  std::function<std::optional<MicroBatch>()> micro_batches(std::int64_t from, std::int64_t to) const;

  LoaderOptions loader_options() const;       // one batch at a time
  LoaderOptions step_loader_options() const;  // for training: all batches of a captured group at once
  CapturePartition capture_partition(std::int64_t micro_batch) const;
  ReducerSpec reducer_spec(std::int64_t gradient_count) const;
  bool progress_thread() const;  // a thread of its own drives communication, beside the step

  // What a network with micro-batches of so many rows needs, loaders included. Allocates nothing.
  NetworkPlan plan(std::int64_t rows) const;
  std::size_t memory_bytes() const;  // device memory that this rank may use

  // Everything that must stay the same for a resumed run to be bitwise equal to an uninterrupted one.
  std::map<std::string, std::string> provenance() const;
};

}  // namespace millrace
