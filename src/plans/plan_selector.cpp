#include "millrace/plans/plan_selector.hpp"

#include <utility>

#include "millrace/base/error.hpp"

namespace millrace {

PlanSelector::PlanSelector(const std::string& identity, const std::filesystem::path& file,
                           const PlanSelectorOptions& options)
    : options_(options), cache_(identity) {
  if (options_.keep && options_.rank == 0) {
    file_ = file;
    cache_.load(file_);
    cache_.forget_disturbed();
  }
  if (!options_.broadcast) return;
  const std::string all = options_.broadcast(options_.rank == 0 ? cache_.serialize() : "");
  if (options_.rank == 0) return;
  const std::string why = cache_.replace_with(all);
  MR_CHECK(why.empty(), "{}", why);
}

// Returns the entry of rank 0 on all ranks; the argument of the other ranks is ignored. The entry is sent as a cache
// with one entry.
PlanEntry PlanSelector::shared(const std::string& key, PlanEntry mine) const {
  if (!options_.broadcast) return mine;
  PlanCache one("");
  if (options_.rank == 0) one.insert(key, std::move(mine));
  one.merge(options_.broadcast(options_.rank == 0 ? one.serialize() : ""));
  const PlanEntry* entry = one.find(key);
  MR_CHECK(entry, "{}", "rank 0 chose a plan for another problem than " + key);
  return *entry;
}

PlanEntry PlanSelector::get(const std::string& problem, const std::function<PlanEntry()>& select) {
  const std::string key = timing_enabled() ? problem : problem + " untimed";
  if (const PlanEntry* known = cache_.find(key)) return *known;
  PlanEntry mine;
  if (!options_.broadcast || options_.rank == 0) {
    try {
      mine = select();
    } catch (...) {
      shared(key, {});  // the other ranks wait for a broadcast
      throw;
    }
  }
  const bool may_stay = std::exchange(mine.persistent, true);  // the others get only persistent entries
  PlanEntry entry = shared(key, std::move(mine));
  // Choices without timing are cheap to repeat.
  entry.persistent = timing_enabled() && may_stay && (entry.seconds > 0 || entry.plan.empty());
  cache_.insert(key, entry);
  if (entry.persistent) cache_.save(file_);  // now, so that it is kept even if the run fails later
  return entry;
}

}  // namespace millrace
