#include "train/prediction_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/base/version.hpp"
#include "millrace/data/index/class_names.hpp"
#include "millrace/io/hdf5.hpp"
#include "millrace/watchdog/watchdog.hpp"
#include "train/checkpoint/piece_writer.hpp"
#include "train/prediction_table.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
constexpr const char* predictions_format = "millrace-predictions-1";

fs::path aside_of(const fs::path& path) { return path.string() + ".tmp"; }

bool is_prediction_file(const fs::path& path) {
  try {
    return io::File::open(path).get_string("/", "format") == predictions_format;
  } catch (const Error&) {  // it is no HDF5 file
    return false;
  }
}

// On rank 0; the others get its error. Collective.
template <class F>
void on_root(World& world, F f) {
  const watchdog::WaitScope waits(watchdog::Wait::file);
  world.agree(Exit::data, world.rank() == 0 ? message_of(f) : "");
}

class Hdf5PredictionFile : public PredictionFile {
 public:
  Hdf5PredictionFile(World& world, const PredictionTarget& target, std::int64_t samples,
                     std::vector<PredictionArray> arrays, std::int64_t step)
      : world_(world), target_(target), aside_(aside_of(target.path)), arrays_(std::move(arrays)) {
    offsets_.resize(arrays_.size());
    try {
      on_root(world_, [&] { create(samples, step); });
      world_.broadcast(offsets_.data(), offsets_.size() * sizeof offsets_[0], 0);
      fd_ = ::open(aside_.c_str(), O_WRONLY | O_CLOEXEC);
      world_.agree(Exit::data,
                   fd_ >= 0 ? "" : fmt::format("cannot open {} ({})", aside_.string(), std::strerror(errno)));
    } catch (...) {
      discard();
      throw;
    }
  }
  ~Hdf5PredictionFile() override {
    if (fd_ >= 0) ::close(fd_);
  }

  void write(std::size_t array, std::int64_t first, std::int64_t rows, const char* data) override {
    const watchdog::PartScope part(watchdog::Part::evaluation);
    const watchdog::WaitScope waits(watchdog::Wait::file);
    const std::size_t row_bytes = arrays_[array].bytes();
    off_t at = off_t(offsets_[array]) + off_t(first) * off_t(row_bytes);
    for (std::size_t left = std::size_t(rows) * row_bytes; left > 0;) {
      const ssize_t n = ::pwrite(fd_, data, std::min(left, most_bytes), at);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail(Exit::data, "{}", problem_of(errno));
      watchdog::beat();
      data += n;
      at += n;
      left -= std::size_t(n);
    }
  }

  void finish() override {
    const watchdog::WaitScope waits(watchdog::Wait::file);
    int error = ::fsync(fd_) != 0 ? errno : 0;
    if (::close(std::exchange(fd_, -1)) != 0 && error == 0) error = errno;  // NFS reports failed writes here
    world_.agree(Exit::data, error ? problem_of(error) : "");
    on_root(world_, [&] {
      check_prediction_path(target_);
      rename_durably(aside_, target_.path);
      created_ = false;
    });
  }

  void discard() noexcept override {
    std::error_code ignored;
    if (created_ || fd_ >= 0) fs::remove(aside_, ignored);
  }

 private:
  static constexpr std::size_t most_bytes = 16u << 20;  // of one call, after which the watchdog hears of it

  std::string problem_of(int error) const {
    return fmt::format("cannot write {} ({}). free space, or name another file with --output", aside_.string(),
                       std::strerror(error));
  }

  void create(std::int64_t samples, std::int64_t step) {
    std::error_code none;
    require_regular_file(aside_);
    if (fs::exists(aside_, none) && !is_prediction_file(aside_))
      fail(Exit::data, "{} exists and was not written by millrace predict. remove it, or name another --output",
           aside_.string());
    created_ = true;
    io::File file = io::File::create(aside_);
    file.set("/", "format", std::string(predictions_format));
    file.set("/", "millrace_version", std::string(version));
    file.set("/", "step", step);
    for (const PredictionArray& array : arrays_) {
      std::vector<std::int64_t> shape = array.row.extents();
      shape.insert(shape.begin(), samples);
      file.create_dataset("/" + array.name, array.dtype, shape);
      if (!array.class_names.empty()) file.set("/", "class_names", join_class_names(array.class_names));
    }
    for (std::size_t a = 0; a < arrays_.size(); ++a) {
      const auto offset = file.info("/" + arrays_[a].name).offset;
      MR_CHECK(offset.has_value(), "{}: {} has no storage", aside_.string(), arrays_[a].name);
      offsets_[a] = std::int64_t(*offset);
    }
    file.close();
    allocate_file(aside_, "the file of predictions");
  }

  World& world_;
  const PredictionTarget target_;
  const fs::path aside_;
  const std::vector<PredictionArray> arrays_;
  std::vector<std::int64_t> offsets_;  // in the file, in bytes
  bool created_ = false;               // by this rank
  int fd_ = -1;
};

}  // namespace

void check_prediction_path(const PredictionTarget& target) {
  std::error_code none;
  require_regular_file(target.path);
  if (!fs::exists(target.path, none)) return;
  const std::string name = target.path.string();
  if (target.table())
    fail(Exit::data, "{} exists already, and a table does not say what wrote it. name another file, or remove this one",
         name);
  if (!is_prediction_file(target.path))
    fail(Exit::data, "{} exists and was not written by millrace predict. name another file, or remove this one", name);
  if (!target.overwrite) fail(Exit::data, "{} exists already. --overwrite replaces it", name);
}

void check_prediction_target(World& world, const PredictionTarget& target) {
  const std::string end = target.path.extension().string();
  if (end != ".h5" && end != ".hdf5" && end != ".csv")
    fail(Exit::config, "command line: --output: '{}' ends in neither .h5, .hdf5 nor .csv. name such a file",
         target.path.string());
  on_root(world, [&] {
    std::error_code none;
    const fs::path folder = target.path.parent_path();
    if (!folder.empty() && !fs::is_directory(folder, none))
      fail(Exit::data, "there is no folder {} for {}. create it", folder.string(), target.path.string());
    check_prediction_path(target);
  });
}

std::unique_ptr<PredictionFile> make_prediction_file(World& world, const PredictionTarget& target, std::int64_t samples,
                                                     std::vector<PredictionArray> arrays, std::int64_t step) {
  if (!target.table()) return std::make_unique<Hdf5PredictionFile>(world, target, samples, std::move(arrays), step);
  return std::make_unique<PredictionTable>(world, target.path, samples, std::move(arrays));
}

}  // namespace millrace
