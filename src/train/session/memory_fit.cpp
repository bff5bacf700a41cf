#include "millrace/train/session/memory_fit.hpp"

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
    if (round < 6 && high > low)  // on the line between the two, which meets the answer or one of its neighbours
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

// A scope whose plans are only looked at.
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

// Ranks may need unequal memory, where their kernels do. All decide by the same numbers: whoever left alone would leave
// the others waiting in the next plan, which is collective.
static std::size_t limit_of(Session& s) { return reduced(s.world, s.memory_bytes(), World::Reduce::min); }

std::int64_t max_micro_batch_that_fits(Session& s, std::int64_t wanted) {
  const Untimed trials(*s.compute.backend);  // else each would take as long as a start; scratch may differ a little
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
  out.problem = cat("train.micro_batch: ", s.batching.micro_batch, " samples at once need ", format_bytes(total), " (",
                    format_bytes(arena), " of them for activations), ", s.compute.device->name(), " has ",
                    format_bytes(limit), " for a rank. ");
  out.problem += most > 0 ? cat("set it to ", most, ", the most that fits")
                          : std::string(
                                "a single sample is too much: use a smaller network, a shorter "
                                "run.precision, or fewer ranks on a host");
  return out;
}

NetworkPlan plan_within_memory(Session& s) {
  MemoryFit result = check_memory_fit(s);
  if (!result.problem.empty()) fail(Exit::config, result.problem);
  return std::move(result.plan);
}

}  // namespace millrace
