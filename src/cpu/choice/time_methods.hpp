// Times the methods of a convolution on all threads of the caller.
#pragma once
#include <memory>
#include <vector>

#include "cpu/choice/conv_candidates.hpp"
#include "millrace/plans/time_candidates.hpp"

namespace millrace::cpu {

// Another method replaces that of the rules only if it takes less than this share of its time.
inline constexpr double needed_gain = 0.95;
// The place of the method to use: 0, that of the rules, unless another is faster by needed_gain. seconds: infinity for
// methods that failed or were much slower. Returns seconds.size() if all are infinite.
std::size_t choose_method(const std::vector<double>& seconds);

struct MethodTimes {
  std::vector<double> seconds;  // of a call; infinity for methods that failed or were much slower
  std::size_t chosen = 0;       // seconds.size() if all failed
};
// Times methods by turns, the one of the rules first in their list. That one is timed beside the fastest even if it
// seemed much slower at first; then only that second measurement decides between the two.
MethodTimes time_methods(std::size_t count, const MeasureCalls&);

class MethodTimer {
 public:
  // Times with at most so many images that a call takes about a millisecond, but enough for all threads.
  MethodTimer(const ConvSpec&, bool winograd);
  ~MethodTimer();
  // The chosen one first, then the others that were not much slower, by time. Medians of several rounds, in which the
  // methods take turns. Transforming the weights, which happens once in a step, does not count. Empty: all failed.
  // Methods that would run the same code as one before them are left out.
  std::vector<TimedMethod> time(ConvPass, const std::vector<ConvMethod>&);
  std::int64_t images() const;  // of a call

 private:
  class Memory;
  struct Tensors;
  ConvSpec spec_;
  bool winograd_;
  std::unique_ptr<Tensors> tensors_;
};

}  // namespace millrace::cpu
