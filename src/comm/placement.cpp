#include "millrace/comm/placement.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "millrace/system/cores.hpp"
#include "millrace/system/launcher.hpp"

namespace millrace {
namespace {

std::string cpu_list(const std::vector<int>& cpus) {
  std::string out;
  for (std::size_t i = 0; i < cpus.size(); ++i) out += (i ? "," : "") + std::to_string(cpus[i]);
  return out;
}

// The affinity mask of a rank.
struct Mask {
  int node = 0;
  long online = 0;  // the number of cores of the host
  std::vector<int> cpus;
  std::vector<int> near;  // those of them that are near its GPU; empty: unknown
  bool far = false;       // it may only use cores far from its GPU
};

std::vector<Mask> masks_of_all(World& world, const std::vector<int>& mine, const std::vector<int>& near) {
  std::vector<Mask> out;
  for (const std::string& text : world.gather(
           fmt::format("{} {} {} {}", world.node(), ::sysconf(_SC_NPROCESSORS_ONLN), cpu_list(mine), cpu_list(near)))) {
    std::istringstream in(text);
    Mask mask;
    std::string cpus, near_cpus;
    in >> mask.node >> mask.online >> cpus >> near_cpus;
    mask.cpus = parse_cpu_list(cpus);
    for (const int cpu : parse_cpu_list(near_cpus))
      if (std::find(mask.cpus.begin(), mask.cpus.end(), cpu) != mask.cpus.end()) mask.near.push_back(cpu);
    mask.far = mask.near.empty() && !near_cpus.empty();
    out.push_back(std::move(mask));
  }
  return out;
}

// Whether each rank of this host gets at least as many cores from those near its GPU as from its whole mask.
bool near_suffices(const std::vector<Mask>& ranks, int node) {
  const auto sharing = [&](std::vector<int> Mask::*cpus, const Mask& one) {
    return std::size_t(std::count_if(ranks.begin(), ranks.end(),
                                     [&](const Mask& m) { return m.node == node && m.*cpus == one.*cpus; }));
  };
  return std::all_of(ranks.begin(), ranks.end(), [&](const Mask& m) {
    return m.node != node || m.near.size() * sharing(&Mask::cpus, m) >= m.cpus.size() * sharing(&Mask::near, m);
  });
}

// The first problem of the masks, the same on all ranks; empty: none.
std::string warning_of(const std::vector<Mask>& ranks, const std::string& advice) {
  std::map<std::pair<int, int>, std::size_t> first;  // by node and core: the first rank that may use it
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (const int core : ranks[r].cpus) {
      const std::size_t other = first.try_emplace({ranks[r].node, core}, r).first->second;
      if (ranks[other].cpus != ranks[r].cpus)
        return fmt::format("ranks {} and {} of one host are bound to different cores that overlap ({} and {}). {}",
                           other, r, cpu_list(ranks[other].cpus), cpu_list(ranks[r].cpus), advice);
    }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Mask& one = ranks[r];
    const auto local = std::count_if(ranks.begin(), ranks.end(), [&](const Mask& m) { return m.node == one.node; });
    if (one.far)
      return fmt::format(
          "rank {} is bound to cores far from its GPU ({}), so that its copies cross the host. bind it near the GPU "
          "(srun --gpu-bind=closest), or do not bind it (mpirun --bind-to none)",
          r, cpu_list(one.cpus));
    if (one.cpus.size() == 1 && one.online >= 2 * local)
      return fmt::format("rank {} is bound to one core of {}. {}", r, one.online, advice);
  }
  return "";
}

}  // namespace

std::string Placement::str() const {
  return fmt::format("cpus {}: {}{}{}{}{}{}", cpu_list(cpus), compute_threads,
                     compute_threads == 1 ? " compute thread, " : " compute threads, ", workers,
                     workers == 1 ? " loader worker" : " loader workers",
                     oversubscribed ? ", cores shared with other ranks" : "",
                     spare_core ? ", a core free for communication" : "");
}

Placement plan_placement(World& world, int compute_threads, int workers, const std::vector<int>& near) {
  Placement out;
  const std::vector<Mask> all = masks_of_all(world, allowed_cpus(), near);
  const Mask& own = all[std::size_t(world.rank())];
  std::vector<int> Mask::*const taken = near_suffices(all, world.node()) ? &Mask::near : &Mask::cpus;
  const std::vector<int>& mine = own.*taken;
  if (taken == &Mask::near && own.near != own.cpus) out.near_cpus = own.near;
  // The ranks of this host with exactly the same cores, and how many of them precede this rank.
  int sharing = 0, before = 0;
  for (int r = 0; r < world.size(); ++r)
    if (const Mask& other = all[std::size_t(r)]; other.node == world.node() && other.*taken == mine) {
      ++sharing;
      before += r < world.rank();
    }
  const std::size_t n = mine.size(), s = std::size_t(std::max(1, sharing)), b = std::size_t(before);
  if (n >= s)
    out.cpus.assign(mine.begin() + std::ptrdiff_t(n * b / s), mine.begin() + std::ptrdiff_t(n * (b + 1) / s));
  else {
    out.cpus = {mine[b % n]};
    out.oversubscribed = true;
  }
  out.cores = int(out.cpus.size());
  out.compute_threads = compute_threads > 0 ? compute_threads : out.cores;
  out.workers = workers > 0 ? workers : std::clamp(out.cores / 4, 1, 4);
  out.spare_core = out.cores > out.compute_threads;
  out.warning = warning_of(all, world.broadcast_string(advice_for_more_cores(std::getenv)));
  return out;
}

}  // namespace millrace
