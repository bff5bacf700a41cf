#include "train/checkpoint/checkpoint.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/units.hpp"
#include "millrace/io/collective_schedule.hpp"
#include "millrace/io/hdf5.hpp"
#include "millrace/train/checkpoint/describe_checkpoint.hpp"
#include "train/checkpoint/checkpoint_tensors.hpp"
#include "train/checkpoint/run_state.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
constexpr const char* format_name = "millrace-checkpoint-1";
constexpr std::int64_t split_bytes = 1 << 20;  // tensors of at least this size are written in parts, one per rank

std::vector<std::int64_t> extents(const Shape& s) { return {s.dims.begin(), s.dims.begin() + s.rank}; }

std::string file_name(std::int64_t step) { return fmt::format("step-{:08}.h5", step); }

std::int64_t bytes_of(const NamedTensor& t) { return t.shape.count() * std::int64_t(sizeof(float)); }

// The CRC-32 of each tensor. Each rank computes its share of them, and an all-reduce combines the results.
std::vector<std::int64_t> checksums(World& world, const std::vector<NamedTensor>& tensors) {
  std::vector<std::int64_t> sums(tensors.size(), 0);
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (int(t % std::size_t(world.size())) == world.rank())
      sums[t] = std::int64_t(crc32(tensors[t].data, std::size_t(bytes_of(tensors[t]))));
  world.all_reduce(std::span<std::int64_t>(sums), World::Reduce::sum);
  return sums;
}

// An error message if the disk has too little space; "" otherwise. This is checked before writing, because not every
// MPI-IO implementation can close a parallel file properly after a failed write.
std::string missing_space(const fs::path& folder, const std::vector<NamedTensor>& tensors) {
  double needed = 64 << 10;  // headers
  for (const NamedTensor& t : tensors) needed += double(bytes_of(t)) + 1024;
  std::error_code unknown;
  const fs::space_info space = fs::space(folder, unknown);
  if (unknown || double(space.available) >= needed) return "";
  return fmt::format("{} has only {} free, but a checkpoint needs {}", folder.string(), format_bytes(space.available),
                     format_bytes(std::uint64_t(needed)));
}

}  // namespace

CheckpointStore::CheckpointStore(World& world, ExecutionContext& compute, fs::path folder, std::int64_t keep)
    : world_(world), compute_(compute), folder_(std::move(folder)), keep_(std::max<std::int64_t>(1, keep)) {}

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

std::string CheckpointStore::write(const fs::path& aside, Snapshot& snapshot, const RunState& run) {
  const auto& tensors = snapshot.tensors();
  const auto sums = checksums(world_, tensors);
  const bool parallel = world_.mpi_comm() != nullptr && world_.size() > 1;
  std::string problem;
  const io::CollectiveLock lock(world_);  // the loader may read samples collectively at the same time
  // All ranks write the text of rank 0. Their own texts may differ (threads, device), and HDF5 hangs if metadata differ
  // between ranks.
  const std::string state = world_.broadcast_string(to_json(run));
  try {
    if (parallel || world_.rank() == 0) {
      io::File file = parallel ? io::File::create_parallel(aside, world_) : io::File::create(aside);
      file.set("/", "format", std::string(format_name));
      file.set("/", "run_state", state);
      file.set("/", "run_state_crc32", std::int64_t(crc32(state.data(), state.size())));
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        file.create_dataset("/" + tensors[t].name, DType::f32, extents(tensors[t].shape));
        file.set("/" + tensors[t].name, "crc32", sums[t]);
      }
      const int ranks = parallel ? world_.size() : 1, rank = parallel ? world_.rank() : 0;
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        const NamedTensor& tensor = tensors[t];
        const std::int64_t rows = tensor.shape[0];
        const bool split = bytes_of(tensor) >= split_bytes;
        if (!split && int(t % std::size_t(ranks)) != rank) continue;
        const std::int64_t begin = split ? rows * rank / ranks : 0, end = split ? rows * (rank + 1) / ranks : rows;
        file.write_rows("/" + tensor.name, begin, end - begin, DType::f32,
                        tensor.data + begin * tensor.shape.row_count());
      }
      file.flush();
      file.close();
    }
    if (world_.rank() == 0) fsync_file(aside);
  } catch (const Error& e) {
    problem = e.what();
  }
  return problem;
}

std::string CheckpointStore::save(Network& network, const RunState& run) {
  Snapshot snapshot(world_, compute_, network);
  snapshot.take();
  const fs::path final_path = folder_ / file_name(run.step), aside = folder_ / ("." + file_name(run.step) + ".tmp");
  std::string problem = world_.broadcast_string(world_.rank() == 0 ? missing_space(folder_, snapshot.tensors()) : "");
  if (!problem.empty()) return problem;
  problem = write(aside, snapshot, run);
  if (problem.empty() && world_.rank() == 0) try {
      rename_durably(aside, final_path);
      write_file_atomically(folder_ / "latest", final_path.filename().string() + "\n");
    } catch (const Error& e) {
      problem = e.what();
    }
  try {
    world_.agree(Exit::data, problem);
  } catch (const Error& e) {
    std::error_code ignored;
    if (world_.rank() == 0) fs::remove(aside, ignored);
    return e.what();
  }
  if (world_.rank() == 0) prune(run);
  world_.barrier();
  return "";
}

void CheckpointStore::prune(const RunState& run) {
  const fs::path best_note = folder_ / "best";
  std::error_code ignored;
  std::string best;
  if (fs::exists(best_note, ignored)) best = read_file(best_note);
  while (!best.empty() && best.back() == '\n') best.pop_back();
  if (run.best_step == run.step) {
    best = file_name(run.step);
    try {
      write_file_atomically(best_note, best + "\n");
    } catch (const Error& e) {  // only a warning, because the checkpoint itself has been written
      log::warn(e.what());
    }
  }
  const auto files = list(folder_);
  for (std::size_t i = 0; i + std::size_t(keep_) < files.size(); ++i)
    if (files[i].filename() != best) fs::remove(files[i], ignored);
}

RunState CheckpointStore::read(Network& network, const fs::path& path, bool* damaged, std::string* problem) {
  Snapshot snapshot(world_, compute_, network);
  RunState run;
  std::int64_t failure = 0;  // 0: none, 1: the file is damaged, 2: it belongs to another model
  std::string state;
  if (world_.rank() == 0) try {
      failure = 1;
      const io::File file = io::File::open(path);
      if (file.get_string("/", "format") != format_name)
        fail(Exit::data, "{} is not a checkpoint of this program", path.string());
      state = file.get_string("/", "run_state").value_or("");
      if (std::int64_t(crc32(state.data(), state.size())) != file.get_int("/", "run_state_crc32"))
        fail(Exit::data, "{}: the checksum of the run state is wrong", path.string());
      for (const NamedTensor& t : snapshot.tensors()) {
        const std::string name = "/" + t.name;
        const bool exists = file.has(name);
        const auto shape = exists ? file.info(name).shape : std::vector<std::int64_t>{};
        if (!exists || shape != extents(t.shape)) {
          failure = 2;
          fail(Exit::config,
               "{} belongs to another model or optimizer ({}{}). set run.dir to a new folder, or restore the model of "
               "the checkpoint",
               path.string(), t.name, exists ? " has another shape" : " is missing");
        }
        file.read_rows(name, 0, t.shape[0], DType::f32, t.data);
        if (std::int64_t(crc32(t.data, std::size_t(bytes_of(t)))) != file.get_int(name, "crc32"))
          fail(Exit::data, "{}: the checksum of {} is wrong", path.string(), t.name);
      }
      run = run_state_from_json(state);
      failure = 0;
    } catch (const std::exception& e) {
      *problem = e.what();
    }
  world_.broadcast(&failure, sizeof failure, 0);
  *problem = world_.broadcast_string(*problem);
  *damaged = failure == 1;
  if (failure != 0) return run;
  for (Snapshot::Flat& flat : snapshot.flats()) world_.broadcast(flat.host, std::size_t(flat.count) * sizeof(float), 0);
  run = run_state_from_json(world_.broadcast_string(state));
  snapshot.put();
  return run;
}

std::optional<RunState> CheckpointStore::load_newest(Network& network) {
  std::string names;
  if (world_.rank() == 0)
    for (const auto& path : list(folder_)) names = path.filename().string() + "\n" + names;  // newest first
  names = world_.broadcast_string(names);
  if (names.empty()) return std::nullopt;
  while (!names.empty()) {
    const std::string name = names.substr(0, names.find('\n'));
    names.erase(0, name.size() + 1);
    bool damaged = false;
    std::string problem;
    RunState run = read(network, folder_ / name, &damaged, &problem);
    if (problem.empty()) return run;
    if (!damaged) fail(Exit::config, "{}", problem);
    log::warn(fmt::format("checkpoint {} is damaged ({}). trying the previous one", name, problem));
  }
  fail(Exit::data, "all checkpoints in {} are damaged. set run.resume = never to start from the beginning",
       folder_.string());
}

RunState CheckpointStore::load(Network& network, const fs::path& path) {
  bool damaged = false;
  std::string problem;
  RunState run = read(network, path, &damaged, &problem);
  if (!problem.empty()) fail(Exit::data, "{}", problem);
  return run;
}

CheckpointText describe_checkpoint(const std::string& path) {
  const io::File file = io::File::open(path);
  const std::string state = file.get_string("/", "run_state").value_or("");
  if (file.get_string("/", "format") != format_name || state.empty())
    fail(Exit::data, "{} is not a checkpoint of this program", path);
  const RunState run = run_state_from_json(state);
  std::ostringstream out;
  out << path << ": step " << run.step << ", epoch " << run.epoch << ", " << run.samples << " samples seen";
  if (run.valid_accuracy >= 0)
    out << ", validation accuracy " << run.valid_accuracy * 100 << " % at step " << run.valid_step;
  out << "\n";
  std::int64_t values = 0;
  std::string damaged;
  if (std::int64_t(crc32(state.data(), state.size())) != file.get_int("/", "run_state_crc32")) damaged = "run_state";
  for (const std::string& name : file.datasets()) {
    const auto info = file.info(name);
    Shape shape;
    for (const auto extent : info.shape) shape.dims[std::size_t(shape.rank++)] = extent;
    std::vector<float> data(std::size_t(shape.count()));
    file.read_rows(name, 0, shape[0], DType::f32, data.data());
    const std::uint32_t sum = crc32(data.data(), data.size() * sizeof(float));
    const bool intact = std::int64_t(sum) == file.get_int(name, "crc32");
    out << "  " << name << "  " << shape.str() << "  crc32 " << sum
        << (intact ? "" : "  DIFFERS FROM THE STORED CHECKSUM") << "\n";
    values += shape.count();
    if (!intact) damaged += (damaged.empty() ? "" : ", ") + name;
  }
  out << (damaged.empty() ? fmt::format("intact: {} values, all checksums agree", values) : "damaged: " + damaged)
      << "\n";
  for (const auto& [key, value] : run.provenance) out << "  " << key << ": " << value << "\n";
  return {out.str(), damaged.empty() ? "" : fmt::format("{} is damaged: the checksum of {} is wrong", path, damaged)};
}

}  // namespace millrace
