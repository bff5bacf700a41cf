// Balance: how a step's micro-batches are divided among the ranks (train.balance). auto: by the time that each takes
// for one, measured as the run goes. Whole micro-batches move, so that gradients and batch statistics are the same
// ones, whoever computes them: only the order of their sums is another. The divisions of a run stand in its
// shares.jsonl; a run with train.balance = that file divides, and so sums, as it did, to the bit.
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

// Micro-batches of each rank in a full step.
using MicrobatchSplit = std::vector<std::int64_t>;

// Those with which the slowest is done soonest, of `all` >= as many as ranks, one for each at least and at most `most`.
// seconds: of one micro-batch, by rank.
MicrobatchSplit balanced_split(std::span<const double> seconds, std::int64_t all, std::int64_t most);

class LoadBalancer {
 public:
  // all: micro-batches of a full step. Error(config): a file that is none, or of other ranks or micro-batches.
  LoadBalancer(World&, const std::string& how, std::int64_t all);
  // As many micro-batches as a rank may come to have of `all`: four times an even share, unless even.
  static std::int64_t max_micro_batches(const std::string& how, std::int64_t all, int ranks);

  // This rank's part of the step with this number in the run (from 0). plan(): the same, for a loader that fetches it,
  // from whatever thread; from then on it stays so.
  MicrobatchRange part(std::int64_t step) const;
  MicrobatchRange plan(std::int64_t step);
  void plan_from(std::int64_t step);  // a loader begins here
  // Of any rank, of a step of so many.
  std::int64_t max_micro_batches(std::int64_t step, std::int64_t micro_batches) const;
  std::int64_t min_micro_batches(std::int64_t step, std::int64_t micro_batches) const;
  std::size_t split_number(std::int64_t step) const;  // before this step: the number of the division

  // After each step, in order, on all ranks; at some of them collective. What the ranks agreed to change, in a line, or
  // empty.
  std::string after_step(const StepMetrics&, const StepTiming&);
  std::string str(std::int64_t step) const;  // the shares, for resume_split()
  // The run goes on at `step` as it was divided when it was stopped; another number of ranks begins anew.
  void resume_split(std::int64_t step, const std::string& shares);
  // What is new for shares.jsonl: step (from 1), line.
  struct Line {
    std::int64_t step = 0;
    std::string text;
  };
  std::vector<Line> take_lines();

 private:
  struct SplitPeriod {
    std::int64_t from = 0;             // step
    std::vector<std::int64_t> bounds;  // 0, then where each rank's micro-batches end
  };
  MicrobatchRange part(const SplitPeriod& d, int rank) const {
    return {d.bounds[std::size_t(rank)], d.bounds[std::size_t(rank) + 1], d.bounds.back()};
  }
  static MicrobatchSplit shares(const SplitPeriod&);
  std::size_t at(std::int64_t step) const;  // of split_periods_
  void begin(std::int64_t from, const MicrobatchSplit&);
  void read(const std::string& file);

  World& world_;
  const std::int64_t all_;
  bool measures_ = false;
  mutable std::mutex mutex_;  // split_periods_, planned_
  std::vector<SplitPeriod> split_periods_;
  std::int64_t planned_ = 0;  // steps before this one are fetched as they are divided
  std::vector<Line> lines_;
  // Since the last change or measurement.
  std::int64_t due_ = 4, steps_ = 0, micro_batches_ = 0;
  double seconds_ = 0, busy_ = 0, span_ = 0.5;
};

}  // namespace millrace
