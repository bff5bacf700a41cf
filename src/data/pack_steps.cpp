#include "pack_steps.hpp"

#include <cmath>
#include <cstdio>
#include <vector>

#include "message_of.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"

namespace millrace {

namespace fs = std::filesystem;

void prepare_folder(World& world, std::int64_t rows, const PackOptions& options) {
  std::string problem;
  if (rows < 1) problem = "there are no rows to pack";
  if (!(options.valid_fraction >= 0 && options.valid_fraction < 1))
    problem = "--valid-fraction must be at least 0 and below 1";
  if (options.valid_fraction > 0 && options.prefix == "valid")
    problem = "the prefix of the training shards is valid too (--prefix). choose another name";
  if (world.rank() == 0 && problem.empty()) {
    std::error_code error;
    fs::create_directories(options.out, error);
    if (error) problem = cat("cannot make ", options.out.string(), " (", error.message(), ")");
    std::vector<std::string> prefixes{options.prefix};
    if (options.valid_fraction > 0) prefixes.push_back("valid");
    for (const auto& prefix : prefixes)
      for (const std::string& old : expand_glob((options.out / (prefix + "-[0-9]*.h5")).string())) {
        if (!options.overwrite) {
          problem = cat(old, " is there already. --overwrite packs anew");
          break;
        }
        fs::remove(old, error);
      }
  }
  world.agree(Exit::data, problem);
}

std::int64_t valid_rows(std::int64_t rows, const PackOptions& options) {
  const std::int64_t valid = std::llround(options.valid_fraction * double(rows));
  if (valid == rows) fail(Exit::config, "a validation share of ", options.valid_fraction, " leaves no rows");
  return valid;
}

std::string write_whole(World& world, const PackOptions& options, const std::string& prefix, std::int64_t shard,
                        const std::function<void(const fs::path&)>& write) {
  char name[32];
  std::snprintf(name, sizeof name, "-%05lld.h5", (long long)shard);
  const fs::path path = options.out / (prefix + name), aside = path.string() + ".tmp";
  try {
    write(aside);
  } catch (...) {  // on every rank
    std::error_code ignored;
    if (world.rank() == 0) fs::remove(aside, ignored);
    throw;
  }
  world.agree(Exit::data, message_of([&] {
                if (world.rank() == 0) rename_durably(aside, path);
              }));
  return path.string();
}

}  // namespace millrace
