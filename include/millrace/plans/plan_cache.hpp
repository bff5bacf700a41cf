// PlanCache: the plan that was chosen for each problem, with a text form for other ranks and later runs. A cache
// belongs to one identity. It rejects the text of another one: its plans may not load, and its times are not
// comparable.
#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace millrace {

struct PlanEntry {
  std::string plan;        // the plan as the library writes it; "": the library has no plan for the problem
  double seconds = 0;      // median of one run; 0: not timed
  bool persistent = true;  // false: not saved for later runs
  double other_work = 0;   // share of the cores' time that other work had while the candidates were timed
  // Other work took so much that the choice may be wrong. It is made again at the next start.
  bool disturbed() const { return other_work > 0.05; }
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

  // A damaged or outdated file is ignored with one warning, and so is a folder that cannot be written. A file that is
  // no plan cache is never overwritten.
  void load(const std::filesystem::path&);
  void save(const std::filesystem::path&);  // does nothing if there is no new persistent entry
  void forget_disturbed();

 private:
  std::string serialize_with_those_saved_by_others(const std::filesystem::path&) const;
  std::string identity_;
  std::map<std::string, PlanEntry> entries_;
  bool changed_ = false, unwritable_ = false;  // unwritable_: after a warning
};

// millrace/<name>.json in $XDG_CACHE_HOME or ~/.cache; empty if neither is known. Other characters than letters,
// digits, '-' and '.' become '_'.
std::filesystem::path user_cache_file(std::string name);

}  // namespace millrace
