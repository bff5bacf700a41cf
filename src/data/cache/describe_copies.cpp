#include "millrace/data/cache/describe_copies.hpp"

#include <fmt/core.h>

#include <filesystem>

#include "data/cache/cache_file.hpp"
#include "data/index/local_copies.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "millrace/data/index/shards.hpp"

namespace millrace {

std::string describe_copies(const ShardIndex& index, const std::string& where) {
  if (where == "memory" || where == "none")
    fail(Exit::config, "copies in memory belong to one run and are removed with it. name the folder of data.cache");
  const LocalCopies copies(index.shards, cache_folder(where));
  std::size_t complete = 0;
  std::uint64_t bytes = 0, all_bytes = 0;
  std::string first_problem;
  for (std::size_t s = 0; s < index.shards.size(); ++s) {
    const Shard shard = index.shards[s];
    const std::string source = std::filesystem::absolute(shard.path.str()).lexically_normal().string();
    const std::string problem = copy_record_problem(source, copies.path_in_folder(s));
    all_bytes += shard.file_bytes;
    if (problem.empty()) {
      ++complete;
      bytes += shard.file_bytes;
    } else if (problem != "none" && first_problem.empty()) {
      first_problem = fmt::format("; the copy of {} will be made again: {}", shard.path, problem);
    }
  }
  return fmt::format("copies in {}: {} of {} files, {} of {}{}{}", copies.folder(), complete, index.shards.size(),
                     format_bytes(bytes), format_bytes(all_bytes),
                     complete ? " (a run compares the checksums before it uses them)" : "", first_problem);
}

}  // namespace millrace
