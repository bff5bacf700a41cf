// Checkpoints: HDF5 files that h5py opens, one data set a tensor in canonical layout, with a CRC-32 each. Written aside
// by all ranks, flushed, fsynced, renamed; checkpoint.cpp alone knows the files. Groups: parameters/, moment1/,
// moment2/, running/.
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

// Where a run stands, besides tensors.
struct RunState {
  std::int64_t step = 0;  // attempted steps = lines of metrics.jsonl
  std::int64_t epoch = 0, step_in_epoch = 0, samples = 0;
  Origin origin;
  std::int64_t unread_samples = 0, unread_in_epoch = 0;  // skipped by data.on_error, over all ranks
  StepState state;
  std::int64_t valid_step = -1, best_step = -1;  // whose weights were evaluated; none: -1
  double valid_accuracy = -1, valid_loss = -1, best_accuracy = -1;
  std::map<std::string, std::string> provenance;  // ranks, threads, versions, ...: a change on resume is warned of
  std::string config;
};

class Snapshot;

class CheckpointStore {
 public:
  CheckpointStore(World&, ExecutionContext&, std::filesystem::path folder, std::int64_t keep);
  // Collective. A failure (full disk) is agreed on, leaves no file behind and comes back as a message; empty: written.
  std::string save(Network&, const RunState&);
  // Collective. The newest whole checkpoint, into the network; a damaged one is reported and the one before is tried.
  // none: no checkpoint.
  std::optional<RunState> load_newest(Network&);
  // Collective. Error(data) when the file is damaged or of another model.
  RunState load(Network&, const std::filesystem::path&);
  static std::vector<std::filesystem::path> list(const std::filesystem::path& folder);  // oldest first

 private:
  std::string write(const std::filesystem::path& aside, Snapshot&, const RunState&);
  RunState read(Network&, const std::filesystem::path&, bool* damaged, std::string* problem);
  void prune(const RunState&);  // names the best, keeps it and the newest
  World& world_;
  ExecutionContext& compute_;
  std::filesystem::path folder_;
  std::int64_t keep_;
};

}  // namespace millrace
