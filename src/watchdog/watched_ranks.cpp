#include "watchdog/watched_ranks.hpp"

#include <unistd.h>

#include <algorithm>

#include "millrace/base/clock.hpp"
#include "millrace/system/launcher.hpp"
#include "watchdog/own_position.hpp"

namespace millrace::watchdog {
namespace {

Position view_of(const WatchedPeer& peer) {
  Position out;
  if (peer.position.at) {
    out = copy_of(*peer.position.at, peer.position.pid);
  } else {
    ::gethostname(out.host, sizeof out.host - 1);
    out.pid = peer.position.pid;
  }
  out.rank = peer.rank;
  out.silent = peer.silent;
  return out;
}

// Before MPI tells, only the number of ranks is known.
std::vector<Position> job_of_launcher() {
  std::vector<Position> out;
  out.resize(std::size_t(job_ranks()));
  for (std::size_t r = 0; r < out.size(); ++r) out[r].rank = int(r);
  return out;
}

}  // namespace

void WatchedRanks::search_peers(double passed) {
  const SharedPosition& own = *own_position.load()->shared.at;
  const double quiet = own.quiet;
  if (peers_known || !for_ranks(own.wait) || quiet < next_search) return;
  next_search = quiet + std::min(30., std::max(0.5, quiet));
  for (JobProcess& one : find_job()) {
    const auto known = std::find_if(peers.begin(), peers.end(), [&](auto& p) { return p.rank == one.rank; });
    if (known == peers.end()) {
      WatchedPeer& peer = peers.emplace_back(WatchedPeer{std::move(one.position), one.rank, 0, passed});
      if (!peer.position.at) continue;
      // It has not run in the time that this rank has counted since then.
      peer.ticks = peer.position.at->ticks;
      peer.silent = std::clamp(steady_seconds() - peer.position.at->last_tick, 0., quiet);
    } else if (!known->position.at) {
      known->position = std::move(one.position);
    }
  }
  std::sort(peers.begin(), peers.end(), [](auto& a, auto& b) { return a.rank < b.rank; });
  peers_known = std::size_t(job_ranks_of_host()) == peers.size() &&
                std::all_of(peers.begin(), peers.end(), [](auto& p) { return p.position.at != nullptr; });
}

void WatchedRanks::observe(double passed) {
  for (WatchedPeer& peer : peers) {
    const std::uint64_t ticks = peer.position.at ? peer.position.at->ticks.load() : 0;
    peer.silent = ticks != peer.ticks || (peer.position.at && peer.position.at->left) ? 0 : peer.silent + passed;
    peer.ticks = ticks;
  }
  for (auto& [node, host] : remote) host.age += passed;
}

std::vector<Position> WatchedRanks::of_host() const {
  if (peers.empty()) return {copy_of(*own_position.load()->shared.at, ::getpid())};
  std::vector<Position> out;
  for (const WatchedPeer& peer : peers) out.push_back(view_of(peer));
  return out;
}

std::vector<Position> WatchedRanks::known() const {
  auto out = of_host();
  for (const auto& [node, host] : remote)
    for (Position p : host.positions) {
      p.silent += host.age;
      if (for_ranks(p.wait)) p.quiet += host.age;
      out.push_back(p);
    }
  std::sort(out.begin(), out.end(), [](const Position& a, const Position& b) { return a.rank < b.rank; });
  return out;
}

bool WatchedRanks::leads(double still_runs) const {
  for (const WatchedPeer& peer : peers) {
    if (peer.position.pid == ::getpid()) return true;
    if (peer.position.at && peer.silent < still_runs) return false;
  }
  return true;
}

bool WatchedRanks::another_ends_run() const {
  return std::any_of(peers.begin(), peers.end(), [](const WatchedPeer& peer) {
    return peer.position.at && peer.position.pid != ::getpid() && peer.position.at->ends_run;
  });
}

std::optional<Verdict> WatchedRanks::verdict(double timeout) const {
  const auto all = known();
  auto found = judge(all, timeout);
  if (!found) return found;
  if (!sees_all && (found->cause == Cause::behind || found->cause == Cause::unknown)) return std::nullopt;
  if (hosts_known || found->cause != Cause::unknown) return found;
  for (const Position& p : job.empty() ? job_of_launcher() : job)
    if (std::none_of(all.begin(), all.end(), [&](const Position& here) { return here.rank == p.rank; }))
      found->missing.push_back(p);
  if (!found->missing.empty()) found->cause = Cause::missing;
  found->whole_host = peers_known;
  return found;
}

}  // namespace millrace::watchdog
