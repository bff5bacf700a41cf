// LocalCacheOptions: copies of the files of a data set on each node.
#pragma once
#include <cstdint>
#include <string>

namespace millrace {

struct LocalCacheOptions {
  std::string where = "none";  // none, memory (/dev/shm, deleted at the end of the run), or a node-local folder
  std::uint64_t budget = 0;    // bytes per node; 0: the free space, less a reserve
  bool wanted() const { return !where.empty() && where != "none"; }
};

}  // namespace millrace
