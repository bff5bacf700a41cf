#include "train/checkpoint/checkpoint.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/in_background.hpp"
#include "millrace/base/log.hpp"
#include "millrace/watchdog/watchdog.hpp"
#include "train/checkpoint/checkpoint_file.hpp"
#include "train/checkpoint/export_model.hpp"
#include "train/checkpoint/load_tensors.hpp"
#include "train/checkpoint/replicas.hpp"
#include "train/checkpoint/run_state.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using watchdog::Part;
using watchdog::PartScope;
using watchdog::Wait;
using watchdog::WaitScope;

template <class T>
bool running(const std::future<T>& future) {
  return future.valid() && future.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
}

template <class T>
T wait_for(std::future<T>& future) {
  const WaitScope waits(Wait::file);
  return future.get();
}

// Returns the message of the lowest rank that has one, on all ranks; "" if none has. Collective.
std::string first_problem(World& world, const std::string& own) {
  try {
    world.agree(Exit::data, own);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

CheckpointStore::CheckpointStore(World& world, ExecutionContext& compute, fs::path folder, std::int64_t keep)
    : world_(world),
      compute_(compute),
      folder_(std::move(folder)),
      keep_(std::max<std::int64_t>(1, keep)),
      writers_(replica_writers(world)) {}

CheckpointStore::~CheckpointStore() = default;

void CheckpointStore::also_export(const NetworkSpec& spec, fs::path out) {
  exported_ = &spec;
  export_ = std::move(out);
}

std::string CheckpointStore::begin(Network& network, const RunState& run) {
  if (saving()) finish();
  network_ = &network;
  run_ = run;
  tensors_ = checkpoint_tensors(network);
  if (const std::string problem = differing_replicas(world_, *compute_.device, tensors_); !problem.empty())
    fail(Exit::comm,
         "step {}: {}. the memory, the processor or the network of its host is faulty: leave it out and start again. "
         "the run resumes from the last checkpoint",
         run.step, problem);
  aside_ = folder_ / ("." + file_name(run.step) + ".tmp");
  if (std::string problem = create_file(); !problem.empty()) return problem;
  if (pieces_.empty()) plan();
  copy_pieces();
  stage_ = Stage::writing;
  writing_ = in_background([path = aside_, own = own_] { return write_pieces(path, own); });
  return "";
}

std::string CheckpointStore::create_file() {
  std::string problem;
  std::vector<std::int64_t> offsets(tensors_.tensors.size(), 0);
  if (world_.rank() == 0) try {
      const WaitScope waits(Wait::file);
      offsets = create_checkpoint_file(aside_, tensors_.tensors, run_.model);
    } catch (const std::exception& e) {  // also of the file system, if the folder is removed meanwhile
      problem = e.what();
      std::error_code ignored;
      fs::remove(aside_, ignored);
    }
  problem = world_.broadcast_string(problem);
  if (!problem.empty()) return problem;
  world_.broadcast(offsets.data(), offsets.size() * sizeof offsets[0], 0);
  if (offsets != offsets_) pieces_.clear();
  offsets_ = std::move(offsets);
  return "";
}

void CheckpointStore::plan() {
  pieces_ = plan_pieces(tensors_, network_->buckets(), offsets_, writers_);
  own_.clear();
  std::size_t bytes = 0;
  for (const Piece& p : pieces_)
    if (p.rank == world_.rank()) bytes += std::size_t(p.count) * sizeof(float);
  if (bytes > buffer_.bytes()) {
    buffer_ = Buffer();
    buffer_ = Buffer(*compute_.device, MemoryKind::pinned, bytes);
  }
  const char* at = buffer_.as<char>();
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    const Piece& piece = pieces_[p];
    if (piece.rank != world_.rank()) continue;
    const std::size_t size = std::size_t(piece.count) * sizeof(float);
    const auto offset = std::uint64_t(offsets_[std::size_t(piece.tensor)]) + std::uint64_t(piece.begin) * sizeof(float);
    own_.push_back({p, offset, at, size});
    at += size;
  }
}

void CheckpointStore::copy_pieces() {
  char* buffer = buffer_.as<char>();
  for (const BufferedPiece& own : own_) {
    const Piece& piece = pieces_[own.piece];
    const NamedTensor& tensor = tensors_.tensors[std::size_t(piece.tensor)];
    const float* device = address_of(tensors_, network_->buckets(), tensor, piece.begin);
    compute_.device->copy_to_host(Stream::compute, buffer + (own.data - buffer), device, own.bytes);
  }
  compute_.device->synchronize();
}

bool CheckpointStore::busy() const { return running(writing_) || running(sealing_); }

std::optional<std::string> CheckpointStore::advance() {
  const PartScope part(Part::checkpoint);
  if (stage_ == Stage::none) return "";
  std::string problem;
  if (stage_ == Stage::writing) {
    problem = combine();
    stage_ = Stage::sealing;
    if (problem.empty()) return std::nullopt;
  } else {
    problem = world_.broadcast_string(world_.rank() == 0 ? wait_for(sealing_) : "");
  }
  stage_ = Stage::none;
  std::error_code ignored;
  if (!problem.empty() && world_.rank() == 0) fs::remove(aside_, ignored);
  return problem;
}

std::string CheckpointStore::combine() {
  const WrittenPieces written = wait_for(writing_);
  if (std::string problem = first_problem(world_, written.problem); !problem.empty()) return problem;
  std::vector<std::int64_t> of_pieces(pieces_.size(), 0);
  for (std::size_t i = 0; i < own_.size(); ++i) of_pieces[own_[i].piece] = std::int64_t(written.checksums[i]);
  world_.all_reduce(std::span<std::int64_t>(of_pieces), World::Reduce::sum);
  if (world_.rank() != 0) return "";
  std::vector<std::uint32_t> of_tensors(tensors_.tensors.size(), 0);
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    std::uint32_t& sum = of_tensors[std::size_t(pieces_[p].tensor)];
    sum = combined_crc32(sum, std::uint32_t(of_pieces[p]), std::size_t(pieces_[p].count) * sizeof(float));
  }
  sealing_ = in_background([this, of_tensors] { return complete(of_tensors); });
  return "";
}

std::string CheckpointStore::complete(const std::vector<std::uint32_t>& checksums) const {
  const PartScope part(Part::checkpoint);
  const WaitScope waits(Wait::file);
  try {
    seal_checkpoint_file(aside_, tensors_.tensors, checksums, run_);
    rename_durably(aside_, folder_ / file_name(run_.step));
  } catch (const std::exception& e) {
    return e.what();
  }
  try {  // the checkpoint has been written, whatever happens now
    note_latest(run_.step);
    prune(run_);
  } catch (const std::exception& e) {
    log::warn(e.what());
  }
  if (exported_) try {
      export_safetensors(read_checkpoint_model(folder_ / file_name(run_.step)), *exported_, export_);
    } catch (const std::exception& e) {
      log::warn(fmt::format("checkpoint.safetensors: {}", e.what()));
    }
  return "";
}

std::string CheckpointStore::finish() {
  while (saving())
    if (const auto outcome = advance()) return *outcome;
  return "";
}

std::string CheckpointStore::save(Network& network, const RunState& run) {
  const std::string problem = begin(network, run);
  return problem.empty() ? finish() : problem;
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
    const ReadResult read = load_tensors(world_, compute_, network, folder_ / name);
    if (read.unreadable == Unreadable::no) return read.run;
    if (read.unreadable == Unreadable::other_model) fail(Exit::config, "{}", read.problem);
    log::warn(fmt::format("checkpoint {} is damaged ({}). trying the previous one", name, read.problem));
  }
  fail(Exit::data, "all checkpoints in {} are damaged. set run.resume = never to start from the beginning",
       folder_.string());
}

RunState CheckpointStore::load(Network& network, const fs::path& path) {
  const ReadResult read = load_tensors(world_, compute_, network, path);
  if (read.unreadable != Unreadable::no) fail(Exit::data, "{}", read.problem);
  return read.run;
}

}  // namespace millrace
