#include "millrace/base/host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

// Reads lines of the form "key value" or "key: value kB".
std::map<std::string, std::size_t> read_table(const fs::path& path) {
  std::map<std::string, std::size_t> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key, unit;
    std::size_t value = 0;
    if (!(words >> key >> value)) continue;
    words >> unit;
    if (key.ends_with(':')) key.pop_back();
    out[key] = unit == "kB" ? value * 1024 : value;
  }
  return out;
}

// Returns `otherwise` if the file does not contain a number; "max" means no limit.
std::size_t read_number(const fs::path& path, std::size_t otherwise) {
  std::size_t value = 0;
  return std::ifstream(path) >> value ? value : otherwise;
}

// The file names and keys of a version of control groups.
struct Version {
  const char *folder, *limit, *used;
  const char* cached[2];
};

void limit_by_group(HostMemory& memory, const fs::path& group, const Version& v) {
  const std::size_t limit = read_number(group / v.limit, unlimited);
  if (limit > memory.total) return;  // without a limit, version 1 reports a huge number
  const auto table = read_table(group / "memory.stat");
  std::size_t used = read_number(group / v.used, 0);
  for (const char* key : v.cached)
    if (const auto found = table.find(key); found != table.end()) used -= std::min(used, found->second);
  memory.total = limit;
  memory.available = std::min(memory.available, limit - std::min(limit, used));
}

}  // namespace

HostMemory host_memory(const fs::path& root) {
  const auto table = read_table(root / "proc/meminfo");
  const auto of = [&](const char* key, std::size_t otherwise) {
    const auto found = table.find(key);
    return found == table.end() ? otherwise : found->second;
  };
  HostMemory memory;
  memory.total = of("MemTotal", unlimited);
  memory.available = of("MemAvailable", memory.total);

  static const Version two{"sys/fs/cgroup", "memory.max", "memory.current", {"active_file", "inactive_file"}};
  static const Version one{"sys/fs/cgroup/memory",
                           "memory.limit_in_bytes",
                           "memory.usage_in_bytes",
                           {"total_active_file", "total_inactive_file"}};
  std::ifstream groups(root / "proc/self/cgroup");  // "0::/path", or "4:memory:/path"
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",memory,") == controllers.npos) continue;
    const Version& version = unified ? two : one;
    // The limit of a group applies to all groups below it. In a container, its own group may be the root.
    fs::path group = root / version.folder;
    limit_by_group(memory, group, version);
    for (const fs::path& part : fs::path(line.substr(second + 1)).relative_path()) {
      group /= part;
      limit_by_group(memory, group, version);
    }
  }
  return memory;
}

}  // namespace millrace
