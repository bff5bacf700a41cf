#include "data/pack/pack_common.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/message_of.hpp"

namespace millrace {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> old_shards(const PackOptions& options) {
  std::vector<std::string> out = expand_glob((options.out / (options.prefix + "-[0-9]*.h5")).string());
  if (options.valid_fraction > 0)
    for (std::string& path : expand_glob((options.out / "valid-[0-9]*.h5").string())) out.push_back(std::move(path));
  return out;
}

fs::path temporary_of(const fs::path& path) { return path.string() + ".tmp"; }

}  // namespace

void prepare_folder(World& world, std::int64_t rows, const PackOptions& options) {
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
    for (const std::string& incomplete :
         expand_glob((options.out / "*-[0-9]*.h5.tmp").string()))  // left by a pack that was killed
      fs::remove(incomplete, error);
    const auto old = old_shards(options);
    if (!old.empty() && !options.overwrite)
      problem = fmt::format("{} exists already. --overwrite replaces it", old.front());
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
                 for (const std::string& old : old_shards(options_))
                   if (std::find(written_.begin(), written_.end(), fs::path(old)) == written_.end()) fs::remove(old);
                 for (const fs::path& path : written_) rename_durably(temporary_of(path), path);
               }));
  written_.clear();
}

}  // namespace millrace
