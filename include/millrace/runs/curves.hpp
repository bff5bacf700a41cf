// Curves: metrics.jsonl reduced to a bounded number of points, however long the run is. Each point stands for a bin of
// consecutive steps and has the minimum, median, maximum and mean of their values.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/telemetry/timeline.hpp"

namespace millrace {

// One value for each bin: minimum, median, maximum and mean. NaN: no value in the bin was finite.
struct Curve {
  std::vector<double> low, mid, high, mean;
};

// Reduces a sequence of values to one point of a Curve. Minimum, maximum and mean are exact. The median is that of an
// evenly spaced sample of at most 1024 values. Values that are not finite are ignored.
class BinSampler {
 public:
  void add(double);
  void flush(Curve&);  // appends the point and starts the next bin

 private:
  static constexpr std::size_t max_kept = 1024;
  std::vector<double> kept_;  // every stride_-th value
  std::uint64_t stride_ = 1, seen_ = 0;
  double low_ = 0, high_ = 0, sum_ = 0;
};

struct Curves {
  std::int64_t first = 0, last = 0;     // first and last step of the file; steps count from 1; 0: the file has no step
  std::int64_t width = 1;               // steps in a bin
  std::int64_t skipped = 0;             // steps that changed nothing because of an overflow
  std::int64_t epoch = 0, samples = 0;  // after the last step
  double last_loss = 0;
  Curve loss, lr, grad_norm, loss_scale, rate, step_ms;  // rate: samples per second
  std::array<Curve, phase_count> phase_ms;               // empty for the phases that are not part of a step
  std::size_t bins() const { return loss.mid.size(); }
  // The bin's range on an axis of steps: half a step before its first step to half a step behind its last one.
  double begin(std::size_t bin) const { return double(first + std::int64_t(bin) * width) - 0.5; }
  double end(std::size_t bin) const;
  double middle(std::size_t bin) const { return (begin(bin) + end(bin)) / 2; }
};
// Error(data) with the line number when a line does not describe a step, or its step does not increase.
Curves read_curves(const std::filesystem::path& metrics, std::size_t max_bins = 300);

// One line of validation.jsonl. NaN: not recorded.
struct Validation {
  double step = 0, loss = 0, accuracy = 0, top5 = 0;
};
std::vector<Validation> read_validations(const std::filesystem::path&);  // Error(data)

}  // namespace millrace
