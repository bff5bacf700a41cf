// The functions of CheckpointStore that concern the folder: which checkpoints there are, and which are deleted.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/checkpoint_file.hpp"
#include "train/checkpoint/export_model.hpp"
#include "train/checkpoint/run_state.hpp"

namespace millrace {

namespace fs = std::filesystem;

// The file name that a note holds, such as `best`; "": there is no note.
static std::string noted(const fs::path& note) {
  std::error_code ignored;
  std::string name;
  if (fs::exists(note, ignored)) name = read_file(note);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

std::string CheckpointStore::file_name(std::int64_t step) { return fmt::format("step-{:08}.h5", step); }

std::vector<fs::path> CheckpointStore::list(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    long long step = 0;
    char rest = 0;
    const std::string name = entry.path().filename().string();
    if (std::sscanf(name.c_str(), "step-%lld.h%c", &step, &rest) == 2 && name == file_name(step))
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

CheckpointModel CheckpointStore::model(World& world, const fs::path& file) {
  std::string problem, record, config;
  std::int64_t step = 0;
  if (world.rank() == 0) try {
      const CheckpointModel read =
          file.extension() == ".safetensors" ? read_safetensors_model(file) : read_checkpoint_model(file);
      if (read.record) record = to_json(*read.record);
      config = read.config;
      step = read.step;
    } catch (const Error& e) {
      problem = e.what();
    }
  world.agree(Exit::data, problem);
  record = world.broadcast_string(record);
  world.broadcast(&step, sizeof step, 0);
  CheckpointModel out{file, std::nullopt, world.broadcast_string(config), step};
  if (!record.empty()) out.record = model_record_from_json(record);
  return out;
}

std::optional<CheckpointModel> CheckpointStore::newest_model(World& world, const fs::path& folder) {
  std::string found;
  if (world.rank() == 0) {
    const auto files = list(folder);
    for (auto file = files.rbegin(); file != files.rend() && found.empty(); ++file) try {
        read_checkpoint_model(*file);
        found = file->string();
      } catch (const Error&) {  // load_newest() warns of it
      }
  }
  found = world.broadcast_string(found);
  if (found.empty()) return std::nullopt;
  return model(world, found);
}

fs::path CheckpointStore::best(World& world, const fs::path& folder) {
  std::string name, problem;
  if (world.rank() == 0) try {
      name = noted(folder / "best");
      if (name.empty() || !fs::exists(folder / name))
        problem = fmt::format("no best checkpoint is noted in {}. use --checkpoint newest or a path", folder.string());
    } catch (const Error& e) {
      problem = e.what();
    }
  world.agree(Exit::data, problem);
  return folder / world.broadcast_string(name);
}

// Writes a note about a checkpoint. A failure is only a warning, because the checkpoint itself has been written.
static void write_note(const fs::path& note, const std::string& name) {
  try {
    write_file_atomically(note, name + "\n");
  } catch (const Error& e) {
    log::warn(e.what());
  }
}

void CheckpointStore::note_latest(std::int64_t step) const {
  const fs::path note = folder_ / "latest";
  try {
    if (noted(note) == file_name(step)) return;
  } catch (const Error&) {  // it cannot be read, so it is written anew
  }
  write_note(note, file_name(step));
}

void CheckpointStore::prune(const RunState& run) const {
  std::error_code ignored;
  std::string best = noted(folder_ / "best");
  if (run.best_step == run.step) {
    best = file_name(run.step);
    write_note(folder_ / "best", best);
  }
  const auto files = list(folder_);
  for (std::size_t i = 0; i + std::size_t(keep_) < files.size(); ++i)
    if (files[i].filename() != best) fs::remove(files[i], ignored);
}

}  // namespace millrace
