// StepHistory: what a small screen can show of the steps so far. Its memory is bounded, however many steps there are.
#pragma once
#include <deque>
#include <vector>

#include "millrace/runs/metrics.hpp"

namespace millrace {

class StepHistory {
 public:
  // A step that is not above the last one means that the run was restarted before it: the older steps are forgotten.
  void add(const StepMetrics&);
  void clear() { *this = {}; }

  struct Sum {
    std::int64_t steps = 0;
    double seconds = 0, samples = 0;
    double least_seconds = 0;  // that the machine's rates allow; 0: not known
    std::array<double, phase_count> phase_seconds{};
    double rate() const { return seconds > 0 ? samples / seconds : 0; }  // samples per second
    double speed_of_light() const { return seconds > 0 ? least_seconds / seconds : 0; }
    double step_seconds() const { return steps > 0 ? seconds / double(steps) : 0; }  // mean time of a step
  };
  bool empty() const { return all_.steps == 0; }
  const StepMetrics& last() const { return last_; }
  std::int64_t first_step() const { return first_step_; }
  const Sum& all() const { return all_; }
  Sum recent() const;  // the steps of about the last ten seconds, or the last twenty steps when they are longer
  std::int64_t skipped() const { return skipped_; }
  // At most `max_count` mean losses, each over an equal number of steps. NaN: no loss among them was finite.
  std::vector<double> losses(std::size_t max_count) const;

 private:
  struct Mean {
    double sum = 0;
    std::int64_t steps = 0, finite = 0;
    void add(const Mean& other) {
      sum += other.sum;
      steps += other.steps;
      finite += other.finite;
    }
  };
  StepMetrics last_;
  Sum all_;
  std::deque<Sum> recent_;    // each of half a second, or of one step when it is longer
  std::vector<Mean> losses_;  // each of stride_ steps
  std::int64_t stride_ = 1;
  std::int64_t first_step_ = 0, skipped_ = 0;
};

}  // namespace millrace
