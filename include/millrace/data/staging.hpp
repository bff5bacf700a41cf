// Copies of a set's files near each node: where to and how much. See docs/data-format.md.
#pragma once
#include <cstdint>
#include <string>

namespace millrace {

struct StagingOptions {
  std::string where = "none";  // none, memory (/dev/shm, gone with the run), or a folder of the node's own
  std::uint64_t budget = 0;    // bytes a node; 0: what is free, but for a reserve
  bool wanted() const { return !where.empty() && where != "none"; }
};

struct ShardIndex;
// What is there of the copies of a set on this node, by their records: "copies in /local/millrace-cache: 3 of 4
// files, 1.5 GiB of 2 GiB (checksums are compared by the run that takes them); train-3.h5: the source has changed
// since".
std::string describe_copies(const ShardIndex&, const std::string& where);

}  // namespace millrace
