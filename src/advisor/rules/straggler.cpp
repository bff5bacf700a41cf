// Ranks step together, so that the slowest waits least for the sums. What it has that the others have not is the cause.
#include "millrace/advisor/rules/straggler.hpp"

#include <algorithm>

#include "millrace/system/process.hpp"
#include "millrace/telemetry/text.hpp"

namespace millrace {
namespace {

constexpr double least_share = 0.15;  // of the step

double of(const RankAccount& r, Phase p) { return r.seconds[std::size_t(p)]; }
double input(const RankAccount& r) { return of(r, Phase::data_wait) + of(r, Phase::copy) - r.first_wait(); }
double compute(const RankAccount& r) {
  return of(r, Phase::forward) + of(r, Phase::backward) + of(r, Phase::optimizer);
}

// Over all ranks but one.
template <class Get>
double others(const std::vector<RankAccount>& ranks, const RankAccount& but, Get get) {
  double sum = -get(but);
  for (const RankAccount& r : ranks) sum += get(r);
  return sum / double(ranks.size() - 1);
}

// For the reason that sets it apart the most; what holds all ranks down alike makes none of them late. Or empty.
std::string held_down(const RankAccount& slow, const std::vector<RankAccount>& ranks) {
  std::string out;
  double most = 0;
  for (const auto& one : slow.health.slowed) {  // no binding: clang 14 captures none
    const std::string& reason = one.first;
    const double part = one.second;
    const double theirs = others(ranks, slow, [&](const RankAccount& r) {
      const auto it = r.health.slowed.find(reason);
      return it == r.health.slowed.end() ? 0.0 : it->second;
    });
    if (part < 0.1 || part <= 1.5 * theirs || part - theirs <= most) continue;
    most = part - theirs;
    out = text("its clock was held down %.0f %% of the time, the others' %.0f %%: ", 100 * part, 100 * theirs) + reason;
  }
  return out;
}

// A loader's threads are held back as the step's are: then a disk is to blame for what that does not make up for.
std::string cause_of(const RankAccount& slow, const std::vector<RankAccount>& ranks, double more_input,
                     double more_compute) {
  const bool of_input = more_input > more_compute;
  const auto throttled = [](const RankAccount& r) { return std::max(0.0, r.process.throttled_seconds); };
  const double held_back = throttled(slow), theirs = others(ranks, slow, throttled);
  if (held_back > 0.05 * slow.wall_seconds && held_back > 1.5 * theirs &&
      (!of_input || held_back - theirs > 0.5 * more_input))
    return text("a quota held its processor back for %.1f s, the others %.1f s", held_back, theirs);
  const auto taken = [&](const RankAccount& r) { return core_contention(ranks, int(&r - ranks.data())).share(); };
  const double taken_here = taken(slow), taken_there = others(ranks, slow, taken);
  const std::string neighbour =
      taken_here > 0.1 && taken_here > 1.5 * taken_there
          ? text("other processes took %.0f %% of its cores, the others' %.0f %%: a noisy neighbour", 100 * taken_here,
                 100 * taken_there)
          : "";
  if (of_input)
    return !neighbour.empty() && (taken_here - taken_there) * slow.wall_seconds > 0.5 * more_input
               ? neighbour
               : text("it waits for samples %.1f s, the others %.1f s: a slow disk or path", input(slow),
                      others(ranks, slow, input));
  if (const std::string held = held_down(slow, ranks); !held.empty()) return held;
  const auto clock = [](const RankAccount& r) { return std::max(0.0, r.health.clock_mhz); };
  if (clock(slow) > 0 && clock(slow) < 0.93 * others(ranks, slow, clock))
    return text("its clock is %.0f MHz, the others %.0f", clock(slow), others(ranks, slow, clock));
  const auto cores = [](const RankAccount& r) { return double(r.cores); };
  if (cores(slow) < others(ranks, slow, cores))
    return text("it has %.0f cores, the others %.1f", cores(slow), others(ranks, slow, cores));
  if (!neighbour.empty()) return neighbour;
  const auto preempted = [](const RankAccount& r) {
    return double(r.process.preempted) / std::max(1e-9, r.wall_seconds);
  };
  if (preempted(slow) > 50 && preempted(slow) > 1.5 * others(ranks, slow, preempted))
    return text("it lost its cores %.0f times a second, the others %.0f: more threads or processes than cores",
                preempted(slow), others(ranks, slow, preempted));
  return text("it computes %.1f s, the others %.1f s, for a reason that is not seen from here", compute(slow),
              others(ranks, slow, compute));
}

}  // namespace

CoreContention core_contention(const std::vector<RankAccount>& ranks, int rank) {
  const RankAccount& mine = ranks[std::size_t(rank)];
  const ProcessStats& p = mine.process;
  if (p.cores_busy_seconds < 0 || mine.wall_seconds <= 0) return {};
  const auto cores = cores_of(p.cores);
  double own = 0;  // of the job: of a rank that shares some of its cores, as much of its time
  for (const RankAccount& r : ranks) {
    if (r.host != mine.host) continue;
    const auto theirs = cores_of(r.process.cores);
    const auto shared = std::count_if(theirs.begin(), theirs.end(), [&](const auto& core) {
      return std::find(cores.begin(), cores.end(), core) != cores.end();
    });
    if (shared > 0) own += r.process.cpu_seconds * double(shared) / double(theirs.size());
  }
  return {double(cores.size()), std::max(0.0, p.cores_busy_seconds - own) / mine.wall_seconds,
          std::max(0.0, p.stolen_seconds) / mine.wall_seconds};
}

Straggler straggler(const std::vector<RankAccount>& ranks) {
  if (ranks.size() < 2 || ranks[0].steps == 0) return {};
  const auto own = [](const RankAccount& r) { return input(r) + compute(r); };
  const auto slow =
      std::max_element(ranks.begin(), ranks.end(), [&](const auto& a, const auto& b) { return own(a) < own(b); });
  const double more = own(*slow) - others(ranks, *slow, own), steps = double(ranks[0].steps);
  if (more < least_share * (own(*slow) + of(*slow, Phase::communication))) return {};
  const double more_input = std::max(0.0, input(*slow) - others(ranks, *slow, input)), more_compute = more - more_input;
  return {int(slow - ranks.begin()), slow->host, cause_of(*slow, ranks, more_input, more_compute), more / steps,
          std::min(more, more_input) / steps};
}

std::string straggler_line(const std::vector<RankAccount>& ranks) {
  const Straggler s = straggler(ranks);
  if (s.rank < 0) return "";
  return text("  straggler: rank %d on %s, %.2f ms a step more than the others: ", s.rank, s.host.c_str(),
              s.seconds * 1e3) +
         s.cause + "\n";
}

}  // namespace millrace
