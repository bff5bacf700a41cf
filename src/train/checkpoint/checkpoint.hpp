// CheckpointStore: the checkpoints of a run. A checkpoint is an HDF5 file, readable with h5py, that has one data set
// for each tensor in the canonical layout, with a CRC-32 each. The groups are parameters/, moment1/, moment2/ and
// running/. All ranks write a temporary file, which is flushed, fsynced and renamed. Only checkpoint.cpp knows the file
// format.
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
  std::int64_t step = 0;  // attempted steps, which is the number of lines in metrics.jsonl
  std::int64_t epoch = 0, step_in_epoch = 0, samples = 0;
  Origin origin;
  std::int64_t unread_samples = 0, unread_in_epoch = 0;  // samples that data.on_error skipped, over all ranks
  StepState state;
  // The steps whose weights were evaluated last and with the best accuracy; -1: none.
  std::int64_t valid_step = -1, best_step = -1;
  double valid_accuracy = -1, valid_loss = -1, best_accuracy = -1;
  std::map<std::string, std::string> provenance;  // ranks, threads, device, ...: resuming warns when one differs
  std::string config;                             // text of config.cfg
};

class Snapshot;

class CheckpointStore {
 public:
  CheckpointStore(World&, ExecutionContext&, std::filesystem::path folder, std::int64_t keep);
  // Writes a checkpoint. On a failure, such as a full disk, all ranks return the same message and no file is left;
  // "": written. Collective.
  std::string save(Network&, const RunState&);
  // Loads the newest intact checkpoint into the network. A damaged one gives a warning, and the one before it is tried.
  // nullopt: there is no checkpoint. Error when all are damaged or one is of another model. Collective.
  std::optional<RunState> load_newest(Network&);
  // Error(data) when the file is damaged or of another model. Collective.
  RunState load(Network&, const std::filesystem::path&);
  static std::vector<std::filesystem::path> list(const std::filesystem::path& folder);  // oldest first

 private:
  std::string write(const std::filesystem::path& aside, Snapshot&, const RunState&);
  RunState read(Network&, const std::filesystem::path&, bool* damaged, std::string* problem);
  void prune(const RunState&);  // records the best checkpoint, keeps it and the newest `keep` ones
  World& world_;
  ExecutionContext& compute_;
  std::filesystem::path folder_;
  std::int64_t keep_;
};

}  // namespace millrace
