// LoadBalancer: decides how many micro-batches of a step each rank computes (train.balance). With `auto` it measures
// the time that each rank needs for a micro-batch during the run, and gives slower ranks fewer.
//
// Only whole micro-batches move between ranks. So every micro-batch has the same gradient and batch statistics on any
// rank, and only the order of summation changes. The splits of a run are written to its shares.jsonl. A run with
// train.balance set to that file uses the same splits and gives bitwise the same results.
#pragma once
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/data/load/sampler.hpp"
#include "millrace/train/distributed/step_timing.hpp"

namespace millrace {

// Number of micro-batches of each rank in a full step.
using MicrobatchSplit = std::vector<std::int64_t>;

// The split of `all` micro-batches that minimizes the time of the slowest rank. Each rank gets at least 1 and at most
// `most`. seconds: time of one micro-batch, by rank. all >= number of ranks.
MicrobatchSplit balanced_split(std::span<const double> seconds, std::int64_t all, std::int64_t most);

class LoadBalancer {
 public:
  // how: "even", "auto" or the path of a shares.jsonl. all: micro-batches of a full step. Error(config): the file
  // cannot be read, or has splits for another number of ranks or micro-batches. Collective.
  LoadBalancer(World&, const std::string& how, std::int64_t all);
  // The most micro-batches of `all` that a rank can get: an even share with "even", otherwise up to four times that.
  static std::int64_t max_micro_batches(const std::string& how, std::int64_t all, int ranks);

  // This rank's micro-batches of a step. step: number within the run, from 0.
  MicrobatchRange part(std::int64_t step) const;
  // The same for a loader that is about to fetch the step: afterwards the split of this step does not change. May be
  // called from any thread.
  MicrobatchRange plan(std::int64_t step);
  void plan_from(std::int64_t step);  // call when a loader starts at this step
  // The largest and the smallest number of micro-batches that a rank has in this step. micro_batches: of all ranks.
  std::int64_t max_micro_batches(std::int64_t step, std::int64_t micro_batches) const;
  std::int64_t min_micro_batches(std::int64_t step, std::int64_t micro_batches) const;
  std::size_t split_number(std::int64_t step) const;  // number of the split that this step uses, from 0

  // Call it after each step, in order, on all ranks. Some calls are collective. Returns a line that describes a change
  // of the split, or "" if nothing changes.
  std::string after_step(const StepMetrics&, const StepTiming&);
  std::string str(std::int64_t step) const;  // the split as text, for resume_split()
  // With "auto": resumes at `step` with the split that str() returned. Starts with an even split if that text is for
  // another number of ranks or micro-batches.
  void resume_split(std::int64_t step, const std::string& shares);
  struct Line {
    std::int64_t step = 0;  // from 1
    std::string text;
  };
  std::vector<Line> take_lines();  // new lines for shares.jsonl since the last call

 private:
  struct SplitPeriod {
    std::int64_t from = 0;             // first step, from 0
    std::vector<std::int64_t> bounds;  // 0, then the end of each rank's micro-batches
  };
  MicrobatchRange part(const SplitPeriod& d, int rank) const {
    return {d.bounds[std::size_t(rank)], d.bounds[std::size_t(rank) + 1], d.bounds.back()};
  }
  static MicrobatchSplit shares(const SplitPeriod&);
  std::size_t at(std::int64_t step) const;  // index in split_periods_
  void begin(std::int64_t from, const MicrobatchSplit&);
  void read(const std::string& file);

  World& world_;
  const std::int64_t all_;
  bool measures_ = false;
  mutable std::mutex mutex_;  // guards split_periods_ and planned_
  std::vector<SplitPeriod> split_periods_;
  std::int64_t planned_ = 0;  // loaders have fetched the steps before this one, so their split is fixed
  std::vector<Line> lines_;
  // due_: steps to measure before the ranks compare. span_: seconds that a measurement should last. The others sum up
  // the steps measured so far.
  std::int64_t due_ = 4, steps_ = 0, micro_batches_ = 0;
  double seconds_ = 0, busy_ = 0, span_ = 0.5;
};

}  // namespace millrace
