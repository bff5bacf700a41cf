// StepHistory: of the steps that went by, what a small screen can show, in little memory however many they are.
#pragma once
#include <deque>
#include <vector>

#include "millrace/runs/metrics.hpp"

namespace millrace {

class StepHistory {
 public:
  // A step that is not after the last: the run began anew before it, and what was known is forgotten.
  void add(const StepMetrics&);
  void clear() { *this = {}; }

  struct Sum {
    std::int64_t steps = 0;
    double seconds = 0, samples = 0;
    std::array<double, phase_count> phase_seconds{};
    double rate() const { return seconds > 0 ? samples / seconds : 0; }  // samples/s
    double step_seconds() const { return steps > 0 ? seconds / double(steps) : 0; }
  };
  bool empty() const { return all_.steps == 0; }
  const StepMetrics& last() const { return last_; }
  std::int64_t first_step() const { return first_step_; }
  const Sum& all() const { return all_; }
  Sum recent() const;  // about the last ten seconds of steps, or twenty steps where they are long
  std::int64_t skipped() const { return skipped_; }
  // At most so many means of the loss over parts of equal length; NaN where it was never finite.
  std::vector<double> losses(std::size_t most) const;

 private:
  struct Mean {
    double sum = 0;
    std::int64_t steps = 0, finite = 0;
    void add(const Mean& m) { sum += m.sum, steps += m.steps, finite += m.finite; }
  };
  StepMetrics last_;
  Sum all_;
  std::deque<Sum> parts_;  // of half a second or a step
  std::vector<Mean> losses_;
  std::int64_t stride_ = 1;  // steps of each of these
  std::int64_t first_step_ = 0, skipped_ = 0;
};

}  // namespace millrace
