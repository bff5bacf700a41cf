#include "fit.hpp"

#include <algorithm>
#include <array>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"

namespace millrace {

std::int64_t most_rows(std::int64_t too_many, std::size_t limit,
                       const std::function<std::size_t(std::int64_t rows)>& bytes) {
  if (too_many <= 1) return 0;
  std::int64_t fits = 1, fails = too_many;
  double low = double(bytes(1)), high = double(bytes(too_many));
  if (low > double(limit)) return 0;
  for (int round = 0; fails - fits > 1; ++round) {
    std::int64_t guess = fits + (fails - fits) / 2;
    if (round < 6 && high > low)  // on the line between the two, which meets the answer or one of its neighbours
      guess = fits + std::int64_t((double(limit) - low) / (high - low) * double(fails - fits));
    guess = std::clamp(guess, fits + 1, fails - 1);
    const double needed = double(bytes(guess));
    if (needed <= double(limit))
      fits = guess, low = needed;
    else
      fails = guess, high = needed;
  }
  return fits;
}

Fit fit(Session& s) {
  std::array<std::int64_t, 1> least{std::int64_t(s.memory_bytes())};
  s.world.all_reduce(least, World::Reduce::min);
  const std::size_t limit = std::size_t(least[0]);
  Fit out{s.plan(s.micro_batch), ""};
  const MemoryNeeds& needs = out.plan.needs;
  if (needs.total() <= limit) return out;
  const std::int64_t most = most_rows(s.micro_batch, limit, [&](std::int64_t rows) {
    return rows == s.micro_batch ? needs.total() : s.plan(rows).needs.total();
  });
  out.problem = cat("train.micro_batch: ", s.micro_batch, " samples at once need ", format_bytes(needs.total()), " (",
                    format_bytes(needs.arena), " of them for activations), ", s.compute.device->name(), " has ",
                    format_bytes(limit), " for a rank. ");
  out.problem += most > 0 ? cat("set it to ", most, ", the most that fits")
                          : std::string(
                                "a single sample is too much: use a smaller network, a shorter "
                                "run.precision, or fewer ranks on a host");
  return out;
}

NetworkPlan plan_that_fits(Session& s) {
  Fit result = fit(s);
  if (!result.problem.empty()) fail(Exit::config, result.problem);
  return std::move(result.plan);
}

}  // namespace millrace
