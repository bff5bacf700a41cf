#include "millrace/train/distributed/load_balancer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <queue>
#include <sstream>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/message_of.hpp"

namespace millrace {
namespace {

// The split changes only if it divides the time of the slowest rank by more than this factor.
constexpr double min_gain = 1.04;
// Length of a measurement in steps and in seconds. It doubles each time that the split does not change.
constexpr std::int64_t least_steps = 4, most_steps = 4096;
constexpr double first_span = 0.5, longest_span = 8;
// A rank gets at most this many times its even share. Memory is planned for that.
constexpr std::int64_t most_times = 4;
// Steps after a change that are not measured.
constexpr std::int64_t settling = 2;

double slowest(std::span<const double> seconds, const MicrobatchSplit& shares) {
  double most = 0;
  for (std::size_t r = 0; r < shares.size(); ++r) most = std::max(most, seconds[r] * double(shares[r]));
  return most;
}

MicrobatchSplit even_split(std::int64_t all, int ranks) {
  MicrobatchSplit out;
  for (int r = 0; r < ranks; ++r) out.push_back(MicrobatchRange::even(r, ranks).count(all));
  return out;
}

std::string list(const MicrobatchSplit& shares, const char* between) {
  std::string out;
  for (const std::int64_t n : shares) out += fmt::format("{}{}", out.empty() ? "" : between, n);
  return out;
}

}  // namespace

MicrobatchSplit balanced_split(std::span<const double> seconds, std::int64_t all, std::int64_t most) {
  MicrobatchSplit out(seconds.size(), 1);
  MR_CHECK(all >= std::int64_t(out.size()) && all <= most * std::int64_t(out.size()));
  // Gives each remaining micro-batch to the rank that would finish it first; on a tie to the lowest rank.
  using Done = std::pair<double, std::size_t>;
  std::priority_queue<Done, std::vector<Done>, std::greater<>> next;
  for (std::size_t r = 0; r < out.size(); ++r) next.push({2 * seconds[r], r});
  for (std::int64_t left = all - std::int64_t(out.size()); left > 0; --left) {
    while (out[next.top().second] == most) next.pop();
    const std::size_t rank = next.top().second;
    next.pop();
    ++out[rank];
    next.push({double(out[rank] + 1) * seconds[rank], rank});
  }
  return out;
}

std::int64_t LoadBalancer::max_micro_batches(const std::string& how, std::int64_t all, int ranks) {
  const std::int64_t even = (all + ranks - 1) / ranks;
  return how == "even" ? even : std::clamp<std::int64_t>(all - ranks + 1, 1, most_times * even);
}

LoadBalancer::LoadBalancer(World& world, const std::string& how, std::int64_t all) : world_(world), all_(all) {
  if (how != "even" && how != "auto") {
    read(how);
    return;
  }
  const bool even = how == "even";
  begin(0, even ? MicrobatchSplit(std::size_t(world.size()), 1) : even_split(all, world.size()));
  measures_ = !even && world.size() > 1 && all > world.size();
  if (even) lines_.clear();
}

// Reads lines {"step":N,"micro_batches":[...]}: the split from step N on, counted from 1.
void LoadBalancer::read(const std::string& file) {
  std::string text, problem;
  if (world_.rank() == 0) {
    constexpr std::uint64_t max_bytes = 1u << 30;
    problem = message_of([&] { text = read_file(file, max_bytes); });
    if (!problem.empty())
      problem = fmt::format("train.balance: {}. set it to even, auto or the path of a shares.jsonl file", problem);
  }
  world_.agree(Exit::config, problem);
  std::istringstream lines(world_.broadcast_string(text));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const auto object = nlohmann::json::parse(line, nullptr, false);
    const bool whole = object.is_object() && object.contains("step") && object["step"].is_number_integer() &&
                       object.contains("micro_batches") && object["micro_batches"].is_array() &&
                       std::all_of(object["micro_batches"].begin(), object["micro_batches"].end(),
                                   [](const auto& n) { return n.is_number_integer() && n >= 0; });
    const std::int64_t from = whole ? object["step"].get<std::int64_t>() - 1 : -1;
    if (from < (split_periods_.empty() ? 0 : split_periods_.back().from) || (split_periods_.empty() && from != 0))
      fail(Exit::config,
           "train.balance: {}:{} is not a line of a shares.jsonl file (steps start at 1 and never decrease). use the "
           "file of a run",
           file, number);
    const MicrobatchSplit shares = object["micro_batches"].get<MicrobatchSplit>();
    std::int64_t sum = 0;
    for (const std::int64_t n : shares) sum += n;
    if (std::int64_t(shares.size()) != world_.size() || sum != all_)
      fail(Exit::config,
           "train.balance: {}:{} splits {} micro-batches over {} ranks, but this run has {} on {}. use the same number "
           "of both",
           file, number, sum, shares.size(), all_, world_.size());
    const std::int64_t largest = *std::max_element(shares.begin(), shares.end()),
                       limit = max_micro_batches(file, all_, world_.size());
    if (largest > limit)
      fail(Exit::config, "train.balance: {}:{} gives one rank {} of {} micro-batches, but a rank can have at most {}",
           file, number, largest, all_, limit);
    begin(from, shares);
  }
  if (split_periods_.empty()) fail(Exit::config, "train.balance: {} is empty. use the shares.jsonl of a run", file);
}

void LoadBalancer::begin(std::int64_t from, const MicrobatchSplit& shares) {
  SplitPeriod d{from, {0}};
  for (const std::int64_t n : shares) d.bounds.push_back(d.bounds.back() + n);
  split_periods_.push_back(std::move(d));
  lines_.push_back({from + 1, fmt::format("{{\"step\":{},\"micro_batches\":[{}]}}\n", from + 1, list(shares, ","))});
}

MicrobatchSplit LoadBalancer::shares(const SplitPeriod& d) {
  MicrobatchSplit out;
  for (std::size_t r = 0; r + 1 < d.bounds.size(); ++r) out.push_back(d.bounds[r + 1] - d.bounds[r]);
  return out;
}

std::size_t LoadBalancer::at(std::int64_t step) const {
  std::size_t d = split_periods_.size() - 1;
  while (d > 0 && split_periods_[d].from > step) --d;
  return d;
}

MicrobatchRange LoadBalancer::part(std::int64_t step) const {
  const std::lock_guard lock(mutex_);
  return part(split_periods_[at(step)], world_.rank());
}

MicrobatchRange LoadBalancer::plan(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  planned_ = std::max(planned_, step + 1);
  return part(split_periods_[at(step)], world_.rank());
}

void LoadBalancer::plan_from(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  planned_ = step;
}

std::int64_t LoadBalancer::max_micro_batches(std::int64_t step, std::int64_t micro_batches) const {
  const std::lock_guard lock(mutex_);
  std::int64_t out = 0;
  for (int r = 0; r < world_.size(); ++r) out = std::max(out, part(split_periods_[at(step)], r).count(micro_batches));
  return out;
}

std::int64_t LoadBalancer::min_micro_batches(std::int64_t step, std::int64_t micro_batches) const {
  const std::lock_guard lock(mutex_);
  std::int64_t out = micro_batches;
  for (int r = 0; r < world_.size(); ++r) out = std::min(out, part(split_periods_[at(step)], r).count(micro_batches));
  return out;
}

std::size_t LoadBalancer::split_number(std::int64_t step) const {
  const std::lock_guard lock(mutex_);
  return at(step);
}

std::string LoadBalancer::str(std::int64_t step) const {
  const std::lock_guard lock(mutex_);
  return list(shares(split_periods_[at(step)]), " ");
}

void LoadBalancer::resume_split(std::int64_t step, const std::string& text) {
  if (!measures_) return;
  MicrobatchSplit shares;
  std::istringstream in(text);
  std::int64_t sum = 0;
  for (std::int64_t n; in >> n; sum += n) shares.push_back(n);
  if (std::int64_t(shares.size()) != world_.size() || sum != all_) shares = even_split(all_, world_.size());
  split_periods_.clear();
  lines_.clear();
  begin(step, shares);
}

std::vector<LoadBalancer::Line> LoadBalancer::take_lines() { return std::exchange(lines_, {}); }

// Compares the ranks by their forward and backward time only: in communication they wait for each other, so that time
// says nothing about the speed of one rank.
std::string LoadBalancer::after_step(const StepMetrics& m, const StepTiming& pace) {
  if (!measures_ || !pace.full || m.step <= split_periods_.back().from + settling) return "";
  busy_ += m.phase_seconds[std::size_t(Phase::forward)] + m.phase_seconds[std::size_t(Phase::backward)];
  seconds_ += m.seconds;
  micro_batches_ += pace.micro_batches;
  if (++steps_ < due_) return "";

  const std::size_t ranks = std::size_t(world_.size()), rank = std::size_t(world_.rank());
  // Each rank fills in its own values and leaves zeros for the others. The all-reduce is then exact, so all ranks
  // compute the same split.
  std::vector<double> of_all(3 * ranks);
  double *busy = of_all.data(), *seconds = busy + ranks, *planned = seconds + ranks;
  busy[rank] = busy_ / double(micro_batches_);
  seconds[rank] = seconds_ / double(steps_);
  steps_ = micro_batches_ = 0;
  busy_ = seconds_ = 0;
  // While this lock is held, loaders cannot plan further steps. So all ranks agree on a first step for the new split
  // that no loader has fetched.
  const std::lock_guard lock(mutex_);
  planned[rank] = double(planned_);
  world_.all_reduce(of_all, World::Reduce::sum);
  const MicrobatchSplit fair = balanced_split({busy, ranks}, all_, max_micro_batches("auto", all_, int(ranks))),
                        now = shares(split_periods_.back());
  const bool moves = slowest({busy, ranks}, now) > min_gain * slowest({busy, ranks}, fair);
  span_ = moves ? first_span : std::min(longest_span, 2 * span_);
  const double step = *std::max_element(seconds, seconds + ranks);
  due_ = std::clamp(std::int64_t(std::ceil(span_ / std::max(1e-9, step))), least_steps, most_steps);
  if (!moves) return "";
  const std::int64_t from = std::max(m.step, std::int64_t(*std::max_element(planned, planned + ranks)));
  begin(from, fair);
  const auto [least, most] = std::minmax_element(busy, busy + ranks);
  const std::string times = fmt::format("a micro-batch takes {:.3g} ms on rank {}, {:.3g} ms on rank {}", *least * 1e3,
                                        int(least - busy), *most * 1e3, int(most - busy));
  const auto words = [&](const MicrobatchSplit& s) {
    return s.size() <= 16
               ? list(s, " ")
               : fmt::format("{} to {}", *std::max_element(s.begin(), s.end()), *std::min_element(s.begin(), s.end()));
  };
  return fmt::format("step {}: {}; micro-batches per rank {} -> {} from step {} on", m.step, times, words(now),
                     words(fair), from + 1);
}

}  // namespace millrace
