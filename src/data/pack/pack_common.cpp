#include "data/pack/pack_common.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

namespace fs = std::filesystem;

namespace {

// The files <prefix>-<number><end> in the folder, sorted.
std::vector<fs::path> numbered_files(const fs::path& folder, const std::string& prefix, const std::string& end) {
  std::vector<fs::path> out;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.size() <= prefix.size() + 1 + end.size() || !name.starts_with(prefix + "-") || !name.ends_with(end))
      continue;
    const auto digits = name.substr(prefix.size() + 1, name.size() - prefix.size() - 1 - end.size());
    if (digits.find_first_not_of("0123456789") == std::string::npos) out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Files of earlier shards with the names that these options give.
std::vector<fs::path> earlier_files(const PackOptions& options, const std::string& end) {
  std::vector<fs::path> out = numbered_files(options.out, options.prefix, end);
  if (options.valid_fraction > 0)
    for (fs::path& path : numbered_files(options.out, "valid", end)) out.push_back(std::move(path));
  return out;
}

// Only what millrace wrote may be replaced.
std::string problem_replacing(const fs::path& shard) {
  bool own = false;
  const std::string problem = message_of(
      [&] { own = io::File::open(shard.string()).get_string("/", "format").value_or("").starts_with("millrace-"); });
  return own ? ""
             : fmt::format("{} was not written by millrace ({}). remove it, or choose another --out or --prefix",
                           shard.string(), problem.empty() ? "no attribute format" : problem);
}

fs::path temporary_of(const fs::path& path) { return path.string() + ".tmp"; }

}  // namespace

void prepare_folder(World& world, std::int64_t rows, const PackOptions& options) {
  if (options.prefix.empty() || options.prefix.find('/') != std::string::npos)
    fail(Exit::config,
         "--prefix: '{}' is not the beginning of a file name (it is empty or has a slash). name the folder with --out",
         options.prefix);
  std::string problem;
  if (rows < 1) problem = "there are no rows to pack";
  if (!(options.valid_fraction >= 0 && options.valid_fraction < 1))
    problem = "--valid-fraction must be at least 0 and below 1";
  if (options.valid_fraction > 0 && options.prefix == "valid")
    problem = "the prefix of the training shards must not be valid (--prefix). choose another name";
  if (world.rank() == 0 && problem.empty()) {
    std::error_code error;
    fs::create_directories(options.out, error);
    if (error) problem = fmt::format("cannot make {} ({})", options.out.string(), error.message());
    for (const fs::path& incomplete : earlier_files(options, ".h5.tmp"))
      fs::remove(incomplete, error);  // of a killed pack
    const auto old = earlier_files(options, ".h5");
    if (!old.empty() && !options.overwrite)
      problem = fmt::format("{} exists already. --overwrite replaces it", old.front().string());
    for (std::size_t i = 0; i < old.size() && problem.empty(); ++i) problem = problem_replacing(old[i]);
  }
  world.agree(Exit::data, problem);
}

std::int64_t valid_rows(std::int64_t rows, const PackOptions& options) {
  const std::int64_t valid = std::llround(options.valid_fraction * double(rows));
  if (valid == rows) fail(Exit::config, "a validation fraction of {:g} leaves no rows", options.valid_fraction);
  return valid;
}

ShardTransaction::~ShardTransaction() {
  std::error_code ignored;
  if (world_.rank() == 0)
    for (const fs::path& path : written_) fs::remove(temporary_of(path), ignored);
}

std::string ShardTransaction::write(const std::string& prefix, std::int64_t shard,
                                    const std::function<void(const fs::path&)>& write) {
  written_.push_back(options_.out / fmt::format("{}-{:05}.h5", prefix, shard));
  write(temporary_of(written_.back()));
  return written_.back().string();
}

void ShardTransaction::commit() {
  world_.agree(Exit::data, message_of([&] {
                 if (world_.rank() != 0) return;
                 for (const fs::path& old : earlier_files(options_, ".h5"))
                   if (std::find(written_.begin(), written_.end(), old) == written_.end()) fs::remove(old);
                 for (const fs::path& path : written_) rename_durably(temporary_of(path), path);
               }));
  written_.clear();
}

}  // namespace millrace
