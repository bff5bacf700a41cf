// Copies of a set's files near each node: where to and how much. See docs/data-format.md.
#pragma once
#include <cstdint>
#include <string>

namespace millrace {

struct LocalCacheOptions {
  std::string where = "none";  // none, memory (/dev/shm, gone with the run), or a folder of the node's own
  std::uint64_t budget = 0;    // bytes a node; 0: what is free, but for a reserve
  bool wanted() const { return !where.empty() && where != "none"; }
};

}  // namespace millrace
