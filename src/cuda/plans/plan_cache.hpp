// PlanCache: the plan that was chosen for each problem, with a text form for other ranks and later runs. A cache
// belongs to one identity. It rejects the text of another one: its plans may not load, and its times are not
// comparable.
#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace millrace::cuda {

struct PlanEntry {
  std::string plan;        // the plan as the library writes it; "": the library has no plan for the problem
  double seconds = 0;      // median of one run; 0: not timed
  bool persistent = true;  // false: not saved for later runs
  bool operator==(const PlanEntry&) const = default;
};

class PlanCache {
 public:
  explicit PlanCache(std::string identity) : identity_(std::move(identity)) {}
  const PlanEntry* find(const std::string& key) const;
  void insert(const std::string& key, PlanEntry);
  const std::map<std::string, PlanEntry>& entries() const { return entries_; }

  std::string serialize() const;  // the persistent entries
  // Adds the entries of a text. Returns "", or why the whole text was rejected.
  std::string merge(const std::string& text);
  // Becomes a copy of the cache of another rank, whatever its identity, so that all ranks know the same problems.
  // Returns as merge() does.
  std::string replace_with(const std::string& text);

  // A damaged or outdated file is ignored with one warning, and so is a folder that cannot be written.
  void load(const std::filesystem::path&);
  void save(const std::filesystem::path&);  // does nothing if there is no new persistent entry

 private:
  std::string identity_;
  std::map<std::string, PlanEntry> entries_;
  bool changed_ = false;
};

// What a plan and its time depend on, besides the problem. If one of them differs, the plans are chosen again.
struct PlanIdentity {
  std::string library;  // "cudnn"
  std::size_t version = 0;
  std::size_t candidates = 0;  // how many the library proposes for a problem at most
  std::string device;
  int multiprocessors = 0;
  int driver = 0, runtime = 0;  // versions of CUDA: the newest that the driver supports, and that of the runtime
  std::string driver_build;     // "580.65.06"; "": not known

  static PlanIdentity of_current_device(const std::string& library, std::size_t version, std::size_t candidates);
  std::string text() const;
  // millrace/<library>-<version>-<device>-<multiprocessors>.json in $XDG_CACHE_HOME or ~/.cache; empty if neither is
  // known.
  std::filesystem::path file() const;
};
// The build of the driver's kernel module, as Linux says; "" if there is none.
std::string driver_build(const std::filesystem::path& = "/sys/module/nvidia/version");

}  // namespace millrace::cuda
