// CheckpointStore: writes and reads the checkpoints of a run. A checkpoint is an HDF5 file, readable with h5py. It has
// one data set with a CRC-32 for each tensor, in the canonical layout, in the groups parameters/, moment1/, moment2/
// and running/. All ranks write to one temporary file, which is then flushed, fsynced and renamed. Only checkpoint.cpp
// knows the file format.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/train/session/epochs.hpp"
#include "millrace/train/session/network.hpp"

namespace millrace {

// The state of a run apart from its tensors.
struct RunState {
  std::int64_t step = 0;  // steps done, skipped ones included; equals the number of lines in metrics.jsonl
  std::int64_t epoch = 0, step_in_epoch = 0, samples = 0;
  Origin origin;
  std::int64_t unread_samples = 0, unread_in_epoch = 0;  // samples that data.on_error skipped, over all ranks
  StepState state;
  // The steps whose weights were evaluated last and whose weights had the best accuracy; -1: none.
  std::int64_t valid_step = -1, best_step = -1;
  double valid_accuracy = -1, valid_loss = -1, best_accuracy = -1;
  std::map<std::string, std::string> provenance;  // Session::provenance(), and the micro-batch split as "shares"
  std::string config;                             // text of config.cfg
};

class Snapshot;

class CheckpointStore {
 public:
  CheckpointStore(World&, ExecutionContext&, std::filesystem::path folder, std::int64_t keep);
  // Writes a checkpoint and returns "". On a failure, such as a full disk, it removes the file and returns an error
  // message on all ranks. Collective.
  std::string save(Network&, const RunState&);
  // Loads the newest intact checkpoint into the network. If a checkpoint is damaged, it warns and tries the previous
  // one. nullopt: there is no checkpoint. Error(data): all are damaged. Error(config): the checkpoint belongs to
  // another model or optimizer. Collective.
  std::optional<RunState> load_newest(Network&);
  // Loads a checkpoint into the network. Error(data): it is damaged or belongs to another model. Collective.
  RunState load(Network&, const std::filesystem::path&);
  static std::vector<std::filesystem::path> list(const std::filesystem::path& folder);  // oldest first

 private:
  std::string write(const std::filesystem::path& aside, Snapshot&, const RunState&);
  RunState read(Network&, const std::filesystem::path&, bool* damaged, std::string* problem);
  // Notes which checkpoint is the best, and deletes all others except the newest `keep`.
  void prune(const RunState&);
  World& world_;
  ExecutionContext& compute_;
  std::filesystem::path folder_;
  std::int64_t keep_;
};

}  // namespace millrace
