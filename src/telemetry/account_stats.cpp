// Statistics that are updated during a run, and rates derived from them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/telemetry/account.hpp"

namespace millrace {

double LoaderStats::capacity() const {
  return read_seconds > 0 ? double(samples) * std::max(1, workers) / read_seconds : 0;
}

double RankAccount::first_wait() const {
  const double at_batch = seconds[std::size_t(Phase::data_wait)] + seconds[std::size_t(Phase::copy)];
  return std::min({at_batch, loader.wait_seconds, loader.first_batch_seconds});
}

double RankAccount::demand() const {
  const double used = double(steps) * step_times.mean - loader.wait_seconds;
  return used > 0 ? double(loader.samples) / used : 0;
}

void StepTimeHistogram::add(double seconds) {
  const double octave = std::log2(std::max(seconds, 1e-9) / 1e-9);
  ++bins_[std::min(bins_.size() - 1, std::size_t(octave * per_octave))];
  ++count_;
  sum_ += seconds;
  longest_ = std::max(longest_, seconds);
}

double StepTimeHistogram::middle_of(std::size_t bin) { return 1e-9 * std::exp2((double(bin) + 0.5) / per_octave); }

std::vector<TimeBin> StepTimeHistogram::bins() const {
  std::vector<TimeBin> out;
  for (std::size_t b = 0; b < bins_.size(); ++b)
    if (bins_[b] > 0) out.push_back({middle_of(b), bins_[b]});
  return out;
}

StepTimeStats StepTimeHistogram::stats() const {
  if (count_ == 0) return {};
  // Returns the middle of the bin that contains the percentile.
  const auto percentile = [&](double share) {
    std::uint64_t seen = 0;
    std::size_t bin = 0;
    while (bin + 1 < bins_.size() && double(seen += bins_[bin]) < share * double(count_)) ++bin;
    return std::min(longest_, middle_of(bin));
  };
  return {sum_ / double(count_), percentile(0.5), percentile(0.9), percentile(0.99), longest_};
}

void LossScaleStats::add(std::int64_t step, double scale) {
  if (!kept_.empty() && kept_.back().scale == scale) return;
  changes_ += !kept_.empty();
  if (kept_.size() == most_kept) kept_.erase(kept_.begin() + most_kept / 2);
  kept_.push_back({step, scale});
}

InputPathRates input_path_rates(const std::vector<RankAccount>& ranks) {
  InputPathRates rates;
  for (const RankAccount& r : ranks) {
    rates.copy_bytes += r.loader.copy_bytes_rate();
    rates.copy += r.loader.copy_rate();
    if (r.pace.input_pass > 0) rates.input_pass += 1 / r.pace.input_pass;
  }
  return rates;
}

}  // namespace millrace
