#include "millrace/train/session/memory_fit.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"

namespace millrace {

std::int64_t max_rows_within(std::int64_t too_many, std::size_t limit,
                             const std::function<std::size_t(std::int64_t rows)>& bytes) {
  if (too_many <= 1) return 0;
  std::int64_t fits = 1, fails = too_many;
  double low = double(bytes(1)), high = double(bytes(too_many));
  if (low > double(limit)) return 0;
  for (int round = 0; fails - fits > 1; ++round) {
    std::int64_t guess = fits + (fails - fits) / 2;
    if (round < 6 && high > low)  // interpolate linearly, which usually finds the answer or one of its neighbours
      guess = fits + std::int64_t((double(limit) - low) / (high - low) * double(fails - fits));
    guess = std::clamp(guess, fits + 1, fails - 1);
    const double needed = double(bytes(guess));
    if (needed <= double(limit)) {
      fits = guess;
      low = needed;
    } else {
      fails = guess;
      high = needed;
    }
  }
  return fits;
}

namespace {

// Turns kernel timing off while it lives, for plans that are not executed.
class Untimed {
 public:
  explicit Untimed(Backend& backend) : backend_(backend) { backend_.set_kernel_timing(false); }
  ~Untimed() { backend_.set_kernel_timing(true); }
  Untimed(const Untimed&) = delete;

 private:
  Backend& backend_;
};

std::size_t reduced(World& world, std::size_t mine, World::Reduce how) {
  std::array<std::int64_t, 1> value{std::int64_t(mine)};
  world.all_reduce(value, how);
  return std::size_t(value[0]);
}

}  // namespace

// The memory limit of a rank: the minimum over all ranks. Ranks may need different amounts of memory, because their
// kernels may differ. All ranks must decide by the same numbers: planning is collective, so a rank that stopped alone
// would leave the others waiting.
static std::size_t limit_of(Session& s) { return reduced(s.world, s.memory_bytes(), World::Reduce::min); }

std::int64_t max_micro_batch_that_fits(Session& s, std::int64_t wanted) {
  // With kernel timing, each plan would take as long as a start. Without it, workspace sizes may differ slightly.
  const Untimed trials(*s.compute.backend);
  const auto bytes = [&](std::int64_t rows) {
    return reduced(s.world, s.plan(rows).needs.total(), World::Reduce::max);
  };
  const std::size_t limit = limit_of(s), whole = wanted < 1 ? limit + 1 : bytes(wanted);
  if (whole <= limit) return wanted;
  return max_rows_within(wanted, limit, [&](std::int64_t rows) { return rows == wanted ? whole : bytes(rows); });
}

MemoryFit check_memory_fit(Session& s) {
  const auto most_of = [&](std::size_t mine) { return reduced(s.world, mine, World::Reduce::max); };
  const std::size_t limit = limit_of(s);
  MemoryFit out{s.plan(s.batching.micro_batch), ""};
  const std::size_t total = most_of(out.plan.needs.total()), arena = most_of(out.plan.needs.arena);
  if (total <= limit) return out;
  const std::int64_t most = max_micro_batch_that_fits(s, s.batching.micro_batch - 1);
  out.problem = fmt::format(
      "train.micro_batch: {} samples at once need {} ({} of them for activations), but {} has only {} per rank. ",
      s.batching.micro_batch, format_bytes(total), format_bytes(arena), s.compute.device->name(), format_bytes(limit));
  out.problem += most > 0 ? fmt::format("set it to {}, the largest that fits", most)
                          : std::string(
                                "even a single sample does not fit: use a smaller network, a 16-bit "
                                "run.precision, or fewer ranks per host");
  if (s.config.train.recompute != Recompute::full)
    out.problem += ". train.recompute = full needs less memory and more time";
  return out;
}

NetworkPlan plan_within_memory(Session& s) {
  MemoryFit result = check_memory_fit(s);
  if (!result.problem.empty()) fail(Exit::config, "{}", result.problem);
  return std::move(result.plan);
}

}  // namespace millrace
