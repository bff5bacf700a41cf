#include "millrace/advisor/rules/tuning.hpp"

#include <algorithm>
#include <cmath>

#include "millrace/base/align.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/median.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

using Numbers = std::vector<std::int64_t>;

// An axis of ascending numbers, with `now` among them.
SearchAxis ordered_values(
    Bound bound, const char* key, Numbers numbers, std::int64_t now,
    std::string (*print)(std::int64_t) = [](std::int64_t n) { return std::to_string(n); }) {
  numbers.push_back(now);
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  const int position = int(std::find(numbers.begin(), numbers.end(), now) - numbers.begin());
  SearchAxis axis{.bound = bound, .key = key, .now = position};
  for (const std::int64_t n : numbers) axis.values.push_back(print(n));
  return axis;
}

// An axis of words, all of which are tried.
SearchAxis choice(Bound bound, const char* key, Values values, const std::string& now) {
  SearchAxis axis{.bound = bound, .key = key, .values = std::move(values), .ordered_values = false};
  const auto at = std::find(axis.values.begin(), axis.values.end(), now);
  if (at == axis.values.end()) axis.values.insert(at, now);
  axis.now = int(std::find(axis.values.begin(), axis.values.end(), now) - axis.values.begin());
  for (int i = 0; i < int(axis.values.size()); ++i)
    if (i != axis.now) axis.first.push_back(i);
  return axis;
}

SearchAxis readers(const BottleneckMetrics& e) {
  const bool own = !e.config.input.chunked && e.config.input.reader != "synthetic";
  return choice(Bound::input, "data.reader", own ? Values{"direct", "mmap", "uring"} : Values{}, e.config.input.reader);
}

SearchAxis workers(const BottleneckMetrics& e) {
  Numbers numbers;
  if (!e.config.input.reader.starts_with("mpio"))  // it always has one worker
    for (std::int64_t n = 0; n <= 2 * std::max(2, e.config.machine.cores); n = n ? 2 * n : 1) numbers.push_back(n);
  return ordered_values(Bound::input, "data.workers", numbers, e.config.input.workers);
}

// In steps of four: doubling the depth changes little.
SearchAxis prefetch(const BottleneckMetrics& e, const TuneLimits& limits) {
  const std::uint64_t slot =
      std::max<std::uint64_t>(1, std::uint64_t(e.config.training.micro_batch) * e.config.input.sample_bytes);
  Numbers numbers;
  for (const std::int64_t n : {2, 4, 16, 64})
    if (std::uint64_t(n) * slot <= limits.ring_bytes || n <= 4) numbers.push_back(n);
  const bool automatic = e.config.input.prefetch == 0;
  SearchAxis axis =
      ordered_values(Bound::input, "data.prefetch", numbers, automatic ? numbers.front() : e.config.input.prefetch);
  axis.values.insert(axis.values.begin(), "auto");
  axis.lowest = 1;
  axis.now = automatic ? 0 : axis.now + 1;
  if (automatic)
    for (int i = 2; i < std::min(4, int(axis.values.size())); ++i) axis.first.push_back(i);
  else
    axis.first = {0};
  return axis;
}

std::string as_size(std::int64_t bytes) { return print_bytes(std::uint64_t(bytes)); }

// Up to the size at which one bucket holds the whole gradient.
SearchAxis buckets(const BottleneckMetrics& e, const TuneLimits& limits) {
  Numbers numbers;
  const auto now = std::int64_t(e.config.communication.bucket_size), all = std::int64_t(limits.gradient_bytes);
  if (e.config.machine.ranks > 1)
    for (std::int64_t n = 64 << 10; n <= std::int64_t(1) << 30; n *= 4) {
      // The same split as now, or a size close to it.
      const bool same = (n >= all && now >= all) || (2 * n > now && n < 2 * now);
      if (!same) numbers.push_back(n);
      if (n >= all) break;
    }
  SearchAxis axis = ordered_values(Bound::communication, "comm.bucket_size", numbers, now, as_size);
  // Far from the usual size, neighbours differ by less than the noise, so the usual size is tried first.
  const auto usual = std::find(axis.values.begin(), axis.values.end(), as_size(4 << 20));
  const int at = int(std::min<std::ptrdiff_t>(usual - axis.values.begin(), std::ssize(axis.values) - 1));
  if (std::abs(at - axis.now) > 1) axis.first = {at};
  return axis;
}

// How NCCL's kernels share the multiprocessors with those beside them. NCCL's own choice is made for all-reduces alone.
SearchAxis of_nccl(const BottleneckMetrics& e, const char* key, const Values& values, const std::string& now) {
  return choice(Bound::communication, key, e.config.communication.nccl ? values : Values{}, now);
}

// The largest part, of equal parts of a rank's share of a step, that has at most `most` rows.
std::int64_t largest_part(std::int64_t share, std::int64_t most) { return ceil_div(share, ceil_div(share, most)); }
// Equal parts of a rank's share of a step, the largest that fits first.
SearchAxis micro_batches(const BottleneckMetrics& e, const TuneLimits& limits) {
  const std::int64_t share = ceil_div(e.config.training.global_batch, e.config.machine.ranks);
  Numbers numbers;
  if (limits.max_rows > 0) {
    numbers.push_back(largest_part(share, limits.max_rows));
    for (std::int64_t parts = 1; parts <= share; parts *= 2)
      if (ceil_div(share, parts) <= limits.max_rows) numbers.push_back(ceil_div(share, parts));
  }
  const std::int64_t top = numbers.empty() ? 0 : numbers.front();
  SearchAxis axis = ordered_values(Bound::compute, "train.micro_batch", numbers, e.config.training.micro_batch);
  const int at = int(std::find(axis.values.begin(), axis.values.end(), std::to_string(top)) - axis.values.begin());
  if (top > e.config.training.micro_batch) axis.first = {at};
  return axis;
}

// Against costs that do not depend on the size of a step. Each value comes with its micro-batch: a rank's share of the
// step, or the largest part of it that fits.
SearchAxis global_batches(const BottleneckMetrics& e, const TuneLimits& limits) {
  Numbers numbers;
  for (std::int64_t n = 2 * e.config.training.global_batch; n <= limits.max_global_batch; n *= 2) numbers.push_back(n);
  const bool communication = e.share(Bound::communication) > e.share(Bound::compute);
  SearchAxis axis = ordered_values(communication ? Bound::communication : Bound::compute, "train.global_batch", numbers,
                                   e.config.training.global_batch);
  for (const std::string& value : axis.values)
    axis.coupled_settings.push_back(
        {{"train.micro_batch", std::to_string(largest_part(ceil_div(std::stoll(value), e.config.machine.ranks),
                                                           std::max<std::int64_t>(1, limits.max_rows)))}});
  return axis;
}

// Fewer threads on a CPU: all threads wait for the one whose core other work took, and small networks need few.
SearchAxis threads(const BottleneckMetrics& e) {
  Numbers numbers;
  if (!e.config.machine.gpu)
    for (std::int64_t n = 1; n < e.config.machine.threads; n *= 2) numbers.push_back(n);
  return ordered_values(Bound::compute, "run.threads", numbers, e.config.machine.threads);
}

SearchAxis fusion(const TuneLimits& limits) {
  Values levels;
  for (int level = 0; level <= limits.max_fusion; ++level) levels.push_back(std::to_string(level));
  return choice(Bound::compute, "model.fusion", levels, limits.fusion < 0 ? "auto" : std::to_string(limits.fusion));
}

}  // namespace

std::vector<SearchAxis> tune_axes(const BottleneckMetrics& e, const TuneLimits& limits) {
  const ResolvedConfig::Communication& c = e.config.communication;
  std::vector<SearchAxis> axes{readers(e),
                               workers(e),
                               prefetch(e, limits),
                               buckets(e, limits),
                               of_nccl(e, "cuda.nccl_max_ctas", {"auto", "16", "8", "4"}, c.nccl_max_ctas),
                               of_nccl(e, "cuda.nccl_cta_policy", {"default", "efficiency"}, c.nccl_cta_policy),
                               of_nccl(e, "cuda.nccl_windows", {"on", "off"}, c.nccl_windows),
                               global_batches(e, limits),
                               micro_batches(e, limits),
                               threads(e),
                               fusion(limits)};
  std::erase_if(axes, [](const SearchAxis& axis) { return axis.values.size() < 2; });
  return axes;
}

std::optional<std::size_t> next_axis(const BottleneckMetrics& e, std::span<const SearchAxis> axes) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const double share = e.share(axes[i].bound);
    if (share >= min_tuned_share && (!best || share > e.share(axes[*best].bound))) best = i;
  }
  return best;
}

std::optional<int> next_value(const SearchAxis& axis, std::span<const TriedValue> tried) {
  const auto done = [&](int value) {
    return value == axis.now ||
           std::any_of(tried.begin(), tried.end(), [&](const TriedValue& t) { return t.value == value; });
  };
  for (const int value : axis.first)
    if (!done(value)) return value;
  if (!axis.ordered_values) return {};
  int best = axis.now;
  for (const TriedValue& t : tried)
    if (t.kept) best = t.value;
  if (best < axis.lowest) return {};
  for (const int value : {best + 1, best - 1})
    if (value >= axis.lowest && value < int(axis.values.size()) && !done(value)) return value;
  return {};
}

void add_differences(std::vector<double>& differences, std::span<const double> successive) {
  for (std::size_t i = 1; i < successive.size(); ++i)
    differences.push_back(std::abs(std::log(successive[i] / successive[i - 1])));
}

double noise_of(const std::vector<double>& differences) {
  // For normal a and b, the median of |a - b| is 0.954 of their standard deviation.
  return std::max(0.01, differences.empty() ? 0 : median(differences) / 0.954);
}

TrialDecision decide_trial(const std::vector<double>& gains, double noise, int rounds) {
  if (gains.empty()) return TrialDecision::more;
  const double gain = median(gains), n = double(gains.size());
  // Two standard errors. The logarithm of a ratio has sqrt(2) times the noise; the median of n of them has
  // 1.25 / sqrt(n) times that.
  const double doubt = std::exp(2 * std::sqrt(2.0) * noise * (n < 3 ? 1 : 1.25) / std::sqrt(n));
  if (gain * doubt < min_gain) return TrialDecision::drop;
  // Slow moments of a busy machine last for several measurements, so nearly all rounds have to agree.
  const bool agree = std::count_if(gains.begin(), gains.end(), [](double g) { return g > 1; }) >= n - 1;
  if (n >= 3 && agree && gain > min_gain * doubt) return TrialDecision::keep;
  if (int(n) < rounds) return TrialDecision::more;
  return agree && gain >= min_gain && gain > doubt ? TrialDecision::keep : TrialDecision::drop;
}

std::vector<double> TuneTrial::gains() const {
  std::vector<double> out;
  for (std::size_t i = 0; i < std::min(changed.size(), baseline.size()); ++i) out.push_back(baseline[i] / changed[i]);
  return out;
}

}  // namespace millrace
