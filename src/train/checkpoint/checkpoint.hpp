// CheckpointStore: writes and reads the checkpoints of a run (checkpoint_file.hpp: the format of the files).
//
// A save goes on while the training continues: begin() copies what this rank has to write, and a thread of each rank
// writes it into one temporary file. Then the ranks combine their checksums, and a thread of rank 0 completes the file,
// flushes it and gives it its final name. Until then, the previous checkpoint is the newest.
#pragma once
#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/train/session/epochs.hpp"
#include "millrace/train/session/model_record.hpp"
#include "millrace/train/session/network.hpp"
#include "train/checkpoint/checkpoint_tensors.hpp"
#include "train/checkpoint/piece_writer.hpp"
#include "train/session/plateau.hpp"

namespace millrace {

// The state of a run apart from its tensors.
struct RunState {
  std::int64_t step = 0;  // steps done, skipped ones included; equals the number of lines in metrics.jsonl
  std::int64_t epoch = 0, step_in_epoch = 0, samples = 0;
  Origin origin;
  std::int64_t unread_samples = 0, unread_in_epoch = 0;  // samples that data.on_error skipped, over all ranks
  StepState state;
  // The steps whose weights were evaluated last and whose weights were the best by best_metric; -1: none.
  std::int64_t valid_step = -1, best_step = -1;
  std::int64_t evaluations_since_best = 0;  // for train.patience
  double valid_accuracy = -1, valid_loss = -1, best_value = 0;
  std::string best_metric;  // as checkpoint.best
  PlateauState plateau;
  std::map<std::string, std::string> provenance;  // Session::provenance(), and the micro-batch split as "shares"
  std::string config;                             // text of config.cfg
  // JSON of the ModelRecord. Empty after a load; see CheckpointStore::model().
  std::string model;

  // The epoch of the last step, counted from 1 as in messages.
  std::int64_t epoch_from_1() const { return epoch + (step_in_epoch > 0 ? 1 : 0); }
};

// What a checkpoint says before its tensors are read.
struct CheckpointModel {
  std::filesystem::path path;
  std::optional<ModelRecord> record;  // nullopt: formats 1 and 2 have none
  std::string config;                 // text of config.cfg
  std::int64_t step = 0;
};

class CheckpointStore {
 public:
  CheckpointStore(World&, ExecutionContext&, std::filesystem::path folder, std::int64_t keep);
  ~CheckpointStore();

  // Each checkpoint is then also written as a safetensors file, in place of the one before. A failure is a warning.
  // spec must outlive the store.
  void also_export(const NetworkSpec& spec, std::filesystem::path out);

  // Begins to write a checkpoint, after the save before it has ended. Returns "", or why nothing is written, such as a
  // full disk. Error(comm): the weights differ between ranks. Collective.
  std::string begin(Network&, const RunState&);
  bool saving() const { return stage_ != Stage::none; }  // a save has begun and not ended; the same on all ranks
  bool busy() const;                                     // a thread of this rank is at work. Not collective
  // Goes on with a save, at best when no rank is busy; waits for the threads otherwise. Returns, once the save has
  // ended, "" or why there is no checkpoint. Its temporary file is then removed. Collective.
  std::optional<std::string> advance();
  std::string finish();                         // waits for the end of the save
  std::string save(Network&, const RunState&);  // begin() and finish()

  // Loads the newest intact checkpoint into the network. If a checkpoint is damaged, it warns and tries the previous
  // one. nullopt: there is no checkpoint. Error(data): all are damaged. Error(config): the checkpoint belongs to
  // another model or optimizer. Collective.
  std::optional<RunState> load_newest(Network&);
  // Loads a checkpoint into the network. Error(data): it is damaged or belongs to another model. Collective.
  RunState load(Network&, const std::filesystem::path&);
  // Writes the name of this checkpoint to the file `latest`, unless it is there. After a load it corrects what a run
  // that was killed between the two left. A failure is only a warning. Not collective.
  void note_latest(std::int64_t step) const;
  static std::vector<std::filesystem::path> list(const std::filesystem::path& folder);  // oldest first
  // Error(data): the file is damaged or not a checkpoint. Collective.
  static CheckpointModel model(World&, const std::filesystem::path& file);
  // Of the newest checkpoint that is not obviously damaged; nullopt: there is none. Collective.
  static std::optional<CheckpointModel> newest_model(World&, const std::filesystem::path& folder);
  // The checkpoint that was the best by checkpoint.best. Error(data): none is noted. Collective.
  static std::filesystem::path best(World&, const std::filesystem::path& folder);

 private:
  enum class Stage { none, writing, sealing };
  static std::string file_name(std::int64_t step);
  std::string create_file();  // collective
  void plan();                // which pieces this rank writes, and the buffer for them; once
  void copy_pieces();
  std::string combine();  // collective; starts the last thread on rank 0
  std::string complete(const std::vector<std::uint32_t>& checksums) const;  // on rank 0
  // Notes which checkpoint is the best, and deletes all others except the newest `keep`.
  void prune(const RunState&) const;

  World& world_;
  ExecutionContext& compute_;
  std::filesystem::path folder_;
  std::int64_t keep_;
  std::vector<int> writers_;  // replica_writers()
  const NetworkSpec* exported_ = nullptr;
  std::filesystem::path export_;

  // The save in progress. The buffer is kept for the next one.
  Stage stage_ = Stage::none;
  Network* network_ = nullptr;
  RunState run_;
  std::filesystem::path aside_;
  CheckpointTensors tensors_;
  std::vector<std::int64_t> offsets_;
  std::vector<Piece> pieces_;
  std::vector<BufferedPiece> own_;
  Buffer buffer_;
  std::future<WrittenPieces> writing_;
  std::future<std::string> sealing_;  // on rank 0
};

}  // namespace millrace
