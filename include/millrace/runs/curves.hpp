// metrics.jsonl, thinned: a bounded number of points however long the run, each of a bin of steps, with least, median
// and most of what was in it.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/telemetry/timeline.hpp"

namespace millrace {

// By bin; NaN: nothing in it was finite.
struct Curve {
  std::vector<double> low, mid, high, mean;
};

// Values that come one after the other: least, most and mean exactly, the median from an even sample of them.
class BinSampler {
 public:
  void add(double);
  void flush(Curve&);  // as the next bin; begins anew

 private:
  static constexpr std::size_t most = 1024;
  std::vector<double> kept_;
  std::uint64_t stride_ = 1, seen_ = 0;
  double low_ = 0, high_ = 0, sum_ = 0;
};

struct Curves {
  std::int64_t first = 0, last = 0, width = 1;  // steps, from 1; steps a bin
  std::int64_t skipped = 0;                     // steps with overflow
  std::int64_t epoch = 0, samples = 0;          // of the last line
  double last_loss = 0;
  Curve loss, lr, grad_norm, loss_scale, rate, step_ms;
  std::array<Curve, phase_count> phase_ms;  // those that metrics.jsonl has
  std::size_t bins() const { return loss.mid.size(); }
  double begin(std::size_t bin) const { return double(first + std::int64_t(bin) * width) - 0.5; }
  double end(std::size_t bin) const;
  double middle(std::size_t bin) const { return (begin(bin) + end(bin)) / 2; }
};
// Error(data) for a line that is none of ours.
Curves read_curves(const std::filesystem::path& metrics, std::size_t max_bins = 300);

struct Validation {
  double step = 0, loss = 0, accuracy = 0, top5 = 0;
};
std::vector<Validation> read_validations(const std::filesystem::path&);

}  // namespace millrace
