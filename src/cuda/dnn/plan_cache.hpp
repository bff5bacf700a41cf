// Which plan was chosen for which problem, as text that other ranks and later runs can use. Bound to one identity (the
// library's version, device, driver): text of another identity is refused, since plans load nowhere else.
#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace millrace::cuda {

struct PlanEntry {
  std::string plan;        // in the library's words; "": it has nothing for the problem
  double seconds = 0;      // median of one run; 0: not timed
  bool persistent = true;  // for later runs; false: good for this one alone
  bool operator==(const PlanEntry&) const = default;
};

class PlanCache {
 public:
  explicit PlanCache(std::string identity) : identity_(std::move(identity)) {}
  const PlanEntry* find(const std::string& key) const;
  void insert(const std::string& key, PlanEntry);
  const std::map<std::string, PlanEntry>& entries() const { return entries_; }

  std::string serialize() const;  // what is kept
  // Adds to what is there. "" or why the text was refused as a whole.
  std::string merge(const std::string& text);
  // Becomes a copy of another rank's, whatever its identity: all ranks then know the same problems.
  std::string replace_with(const std::string& text);

  // A file that is damaged or stale is ignored with one warning; so is a folder that cannot be written.
  void load(const std::filesystem::path&);
  void save(const std::filesystem::path&);  // nothing where nothing to keep is new

 private:
  std::string identity_;
  std::map<std::string, PlanEntry> entries_;
  bool changed_ = false;
};

// $XDG_CACHE_HOME or ~/.cache, then millrace/<library>-<version>-<device>-<multiprocessors>.json; empty without a home.
std::filesystem::path plan_cache_file(const std::string& library, std::size_t version, const std::string& device,
                                      int multiprocessors);

}  // namespace millrace::cuda
